use super::*;
use proptest::prelude::*;

/// Returns the next matching times after `after`, as local times of the zone.
fn next(text: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
    let schedule = Schedule::new([text], zone).expect("it is a schedule");
    let zone = super::zone(zone).expect("it is a zone");
    let mut at = after.parse().expect("it is a time");
    let mut times = Vec::new();
    for _ in 0..count {
        let Some(next) = schedule.next_after(at) else { break };
        at = next;
        times.push(at.to_zoned(zone.clone()).datetime().to_string());
    }
    times
}

#[test]
fn times_are_those_of_the_fields() {
    let from = "2013-08-29T09:28:00Z";
    for (text, expected) in [
        ("30 3 * * *", &["2013-08-30T03:30:00", "2013-08-31T03:30:00"][..]),
        ("*/15 * * * *", &["2013-08-29T09:30:00", "2013-08-29T09:45:00", "2013-08-29T10:00:00"]),
        ("5/20 * * * *", &["2013-08-29T09:45:00", "2013-08-29T10:05:00"]),
        ("28 9 * * *", &["2013-08-30T09:28:00"]),
        ("0 0 29 2 *", &["2016-02-29T00:00:00", "2020-02-29T00:00:00"]),
        ("0 12 * * MON-FRI", &["2013-08-29T12:00:00", "2013-08-30T12:00:00", "2013-09-02T12:00:00"]),
        ("0 0 1 * 1", &["2013-09-01T00:00:00", "2013-09-02T00:00:00", "2013-09-09T00:00:00"]),
        ("0 0 * jan,July 7", &["2014-01-05T00:00:00"]),
        ("0 0 L * *", &["2013-08-31T00:00:00", "2013-09-30T00:00:00"]),
        ("0 0 LW * *", &["2013-08-30T00:00:00", "2013-09-30T00:00:00"]),
        ("0 0 1W * *", &["2013-09-02T00:00:00", "2013-10-01T00:00:00"]),
        ("0 0 15W * *", &["2013-09-16T00:00:00"]),
        ("0 0 * * 5L", &["2013-08-30T00:00:00", "2013-09-27T00:00:00"]),
        ("0 0 * * fri#2", &["2013-09-13T00:00:00", "2013-10-11T00:00:00"]),
        // Six fields end with a year; seven begin with a second.
        ("0 0 1 1 * 2030", &["2030-01-01T00:00:00"]),
        ("*/20 * * * * * *", &["2013-08-29T09:28:20", "2013-08-29T09:28:40", "2013-08-29T09:29:00"]),
        ("0 0 0 1 1 * 2015-2017/2", &["2015-01-01T00:00:00", "2017-01-01T00:00:00"]),
        ("@hourly", &["2013-08-29T10:00:00"]),
        ("@daily", &["2013-08-30T00:00:00"]),
        ("@weekly", &["2013-09-01T00:00:00"]),
        ("@monthly", &["2013-09-01T00:00:00"]),
        ("@yearly", &["2014-01-01T00:00:00"]),
        ("* * * * * 1980", &[]),
        ("0 0 30 2 *", &[]),
    ] {
        assert_eq!(next(text, "UTC", from, expected.len().max(1)), expected, "{text}");
    }
}

#[test]
fn an_instant_within_a_second_counts_to_the_next() {
    assert_eq!(next("* * * * * * *", "", "2020-01-01T00:00:00.5Z", 1), ["2020-01-01T00:00:01"]);
    assert_eq!(next("* * * * * * *", "", "1969-12-31T23:59:59.5Z", 1), ["1970-01-01T00:00:00"]);
}

#[test]
fn zones_and_their_changes_of_clocks() {
    let new_york = "America/New_York";
    assert_eq!(next("0 9 * * *", new_york, "2019-01-01T00:00:00Z", 1), ["2019-01-01T09:00:00"]);
    // On 2019-03-10, clocks go from 2:00 to 3:00. Times that do not exist are skipped.
    assert_eq!(
        next("30 2 * * *", new_york, "2019-03-09T12:00:00Z", 2),
        ["2019-03-11T02:30:00", "2019-03-12T02:30:00"]
    );
    assert_eq!(
        next("0 * * * *", new_york, "2019-03-10T05:30:00Z", 3),
        ["2019-03-10T01:00:00", "2019-03-10T03:00:00", "2019-03-10T04:00:00"]
    );
    // On 2019-11-03, clocks go from 2:00 back to 1:00. A time of the day occurs once; every hour means every hour.
    assert_eq!(
        next("30 1 * * *", new_york, "2019-11-03T04:00:00Z", 2),
        ["2019-11-03T01:30:00", "2019-11-04T01:30:00"]
    );
    assert_eq!(
        next("30 * * * *", new_york, "2019-11-03T04:00:00Z", 4),
        ["2019-11-03T00:30:00", "2019-11-03T01:30:00", "2019-11-03T01:30:00", "2019-11-03T02:30:00"]
    );
    assert_eq!(
        Schedule::new(["@daily"], "Nowhere/City").err(),
        Some(CronError::Zone("Nowhere/City".to_owned()))
    );
}

#[test]
fn of_several_expressions_the_earliest_counts() {
    let schedule = Schedule::new(["30 3 * * *", "0 0 1 1 *"], "UTC").expect("it is a schedule");
    let at = |text: &str| text.parse::<Timestamp>().expect("it is a time");
    assert_eq!(schedule.next_after(at("2013-12-31T04:00:00Z")), Some(at("2014-01-01T00:00:00Z")));
    assert_eq!(schedule.next_after(at("2014-01-01T00:00:00Z")), Some(at("2014-01-01T03:30:00Z")));
}

#[test]
fn malformed_schedules_are_reported() {
    for (text, expected) in [
        ("not a cron", "missing field(s)"),
        ("", "missing field(s)"),
        ("* * * * * * * *", "too many fields"),
        ("@often", "unknown shorthand \"@often\""),
        ("60 * * * *", "syntax error in minute field: '60'"),
        ("a * * * *", "syntax error in minute field: 'a'"),
        ("* 5-2 * * *", "syntax error in hour field: '5-2'"),
        ("*/0 * * * *", "syntax error in minute field: '*/0'"),
        ("* * 0 * *", "syntax error in day-of-month field: '0'"),
        ("* * 40W * *", "syntax error in day-of-month field: '40W'"),
        ("* * * foo *", "syntax error in month field: 'foo'"),
        ("* * * * mon#6", "syntax error in day-of-week field: 'mon#6'"),
        ("* * * * 1, ", "syntax error in day-of-week field: ''"),
        ("* * * * * 1900", "syntax error in year field: '1900'"),
    ] {
        assert_eq!(Cron::parse(text).expect_err(text).to_string(), expected, "{text}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "[0-9*/,LW#@a-z? -]{0,40}") {
        let _ = Cron::parse(&text).map(|cron| cron.next_after(Timestamp::UNIX_EPOCH, &TimeZone::UTC));
    }

    /// Checks that the next time is later, and that no earlier time matches.
    #[test]
    fn the_next_time_is_the_first(minute in 0_u8..60, hour in 0_u8..24, after in 0_i64..4_000_000_000) {
        let cron = Cron::parse(&format!("{minute} {hour} * * *")).expect("it is one");
        let after = Timestamp::from_second(after).expect("it is a time");
        let next = cron.next_after(after, &TimeZone::UTC).expect("there is one");
        let gap = next.as_second() - after.as_second();
        prop_assert!(gap > 0 && gap <= 86_400);
        let time = next.to_zoned(TimeZone::UTC);
        prop_assert_eq!((time.minute(), time.hour(), time.second()), (minute as i8, hour as i8, 0));
    }
}
