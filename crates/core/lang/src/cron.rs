//! Computes the launch times of periodic jobs from cron expressions in a time zone.
//!
//! An expression has five fields: minute, hour, day of month, month, day of week. Six fields have a year at the end,
//! and seven also a second at the beginning. It may also be `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly` or
//! `@annually`. Fields are lists of values, names, ranges and steps. Days also support `L`, `W`, `LW` and `#`. This
//! is the syntax of hashicorp/cronexpr, which job files use.
//!
//! Times that do not exist, because clocks go forward, are skipped. A time that occurs twice, because clocks go back,
//! counts once, at its first occurrence, unless the expression matches every hour.

mod parse;
#[cfg(test)]
mod tests;

use jiff::{
    SignedDuration, Timestamp,
    civil::{Date, DateTime},
    tz::{AmbiguousOffset, TimeZone},
};

/// The years that an expression can match.
const YEARS: std::ops::RangeInclusive<i16> = 1970..=2099;

/// An error in a cron expression or schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    /// The expression has fewer than five fields.
    #[error("missing field(s)")]
    Missing,
    /// The expression has more than seven fields.
    #[error("too many fields")]
    TooMany,
    /// The word after `@` is unknown. Contains the word.
    #[error("unknown shorthand {0:?}")]
    Shorthand(String),
    /// A field is invalid.
    #[error("syntax error in {field} field: '{text}'")]
    Field {
        /// The name of the field.
        field: &'static str,
        /// The invalid part of the field.
        text: String,
    },
    /// This host has no such time zone. Contains its name.
    #[error("unknown time zone {0}")]
    Zone(String),
}

/// A parsed cron expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cron {
    /// Bit n is set if the expression matches n. The same holds for the following fields.
    seconds: u64,
    minutes: u64,
    hours: u64,
    days: Days,
    months: u64,
    weekdays: Weekdays,
    /// The matching years; index 0 is 1970.
    years: Vec<bool>,
}

/// The matching days of the month.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Days {
    /// `*`: every day, unless the days of the week restrict it.
    any: bool,
    plain: u64,
    /// `L`
    last: bool,
    /// `LW`: the last day from Monday to Friday.
    last_workday: bool,
    /// `15W`: the workday (Monday to Friday) nearest to each of these days, in the same month.
    nearest_workday: u64,
}

/// The matching days of the week, 0 for Sunday.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Weekdays {
    any: bool,
    plain: u64,
    /// `5L`
    last: u64,
    /// `5#2`: bit 5 of the second number is the second Friday of the month.
    nth: [u64; 5],
}

fn has(bits: u64, number: i8) -> bool {
    u32::try_from(number).ok().and_then(|number| bits.checked_shr(number)).is_some_and(|bits| bits & 1 == 1)
}

impl Cron {
    /// Parses an expression.
    ///
    /// # Errors
    ///
    /// The expression has too few or too many fields, or an invalid field.
    pub fn parse(text: &str) -> Result<Self, CronError> {
        parse::parse(text)
    }

    /// Returns the first matching time after `after`, to the second; `None` if it is after 2099.
    pub fn next_after(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let second = SignedDuration::from_secs(1);
        let mut from = Timestamp::from_second(after.as_second()).ok()?.checked_add(second).ok()?;
        if after < Timestamp::from_second(after.as_second()).ok()? {
            // Before 1970, `as_second` has rounded up to the next second already.
            from = Timestamp::from_second(after.as_second()).ok()?;
        }
        loop {
            // Between two clock changes, a zone has a fixed offset.
            let offset = zone.to_offset(from);
            let change = zone.following(from).next().map(|transition| transition.timestamp());
            let found = self.civil_after(offset.to_datetime(from))?;
            let at = offset.to_timestamp(found).ok()?;
            match change.filter(|change| at >= *change) {
                Some(change) => from = change,
                None if self.comes_again(found, at, zone) => from = at.checked_add(second).ok()?,
                None => return Some(at),
            }
        }
    }

    /// Returns whether a local time is the second occurrence after clocks went back, which is skipped.
    fn comes_again(&self, time: DateTime, at: Timestamp, zone: &TimeZone) -> bool {
        match zone.to_ambiguous_timestamp(time).offset() {
            AmbiguousOffset::Fold { before, .. } if self.hours != (1 << 24) - 1 => {
                before.to_timestamp(time).is_ok_and(|first| first < at)
            }
            _ => false,
        }
    }

    /// Returns the first matching local time on or after `from`.
    fn civil_after(&self, from: DateTime) -> Option<DateTime> {
        let mut date = from.date();
        let mut earliest = (from.hour(), from.minute(), from.second());
        loop {
            if date.year() > *YEARS.end() {
                return None;
            }
            date = if !self.in_year(date.year()) {
                earliest = (0, 0, 0);
                Date::new(date.year() + 1, 1, 1).ok()?
            } else if !has(self.months, date.month()) {
                earliest = (0, 0, 0);
                date.last_of_month().tomorrow().ok()?
            } else {
                if self.on(date)
                    && let Some((hour, minute, second)) = self.within_day(earliest)
                {
                    return Some(date.at(hour, minute, second, 0));
                }
                earliest = (0, 0, 0);
                date.tomorrow().ok()?
            };
        }
    }

    fn in_year(&self, year: i16) -> bool {
        usize::try_from(year - YEARS.start())
            .ok()
            .and_then(|index| self.years.get(index))
            .is_some_and(|is| *is)
    }

    /// Returns the first matching time of a day, from `earliest` on.
    fn within_day(&self, earliest: (i8, i8, i8)) -> Option<(i8, i8, i8)> {
        for hour in (earliest.0..24).filter(|hour| has(self.hours, *hour)) {
            let first_minute = if hour == earliest.0 { earliest.1 } else { 0 };
            for minute in (first_minute..60).filter(|minute| has(self.minutes, *minute)) {
                let first_second = if (hour, minute) == (earliest.0, earliest.1) { earliest.2 } else { 0 };
                if let Some(second) = (first_second..60).find(|second| has(self.seconds, *second)) {
                    return Some((hour, minute, second));
                }
            }
        }
        None
    }

    /// Returns whether a day matches. If both kinds of days are restricted, either of them is enough.
    fn on(&self, date: Date) -> bool {
        match (self.days.any, self.weekdays.any) {
            (true, true) => true,
            (true, false) => self.weekdays.has(date),
            (false, true) => self.days.has(date),
            (false, false) => self.days.has(date) || self.weekdays.has(date),
        }
    }
}

impl Days {
    fn has(&self, date: Date) -> bool {
        let last = date.days_in_month();
        let works = |day: i8| workday(date, day);
        has(self.plain, date.day())
            || (self.last && date.day() == last)
            || (self.last_workday && (1..=last).rev().find(|day| works(*day)) == Some(date.day()))
            || (works(date.day())
                && (1..=last).any(|day| has(self.nearest_workday, day) && nearest(date, day) == date.day()))
    }
}

/// Returns whether a day of the month of `date` is a workday (Monday to Friday).
fn workday(date: Date, day: i8) -> bool {
    date.with().day(day).build().is_ok_and(|date| (1..=5).contains(&date.weekday().to_monday_one_offset()))
}

/// Returns the workday nearest to a day, both in the month of `date`.
fn nearest(date: Date, day: i8) -> i8 {
    let last = date.days_in_month();
    // A Saturday is one day after Friday and two before Monday; a Sunday is the reverse.
    [0, -1, 1, -2, 2]
        .into_iter()
        .map(|step| day + step)
        .find(|near| (1..=last).contains(near) && workday(date, *near))
        .unwrap_or(day)
}

impl Weekdays {
    fn has(&self, date: Date) -> bool {
        let day = date.weekday().to_sunday_zero_offset();
        let in_last_week = date.day() + 7 > date.days_in_month();
        let nth = usize::try_from((date.day() - 1) / 7).ok().and_then(|week| self.nth.get(week));
        has(self.plain, day)
            || (in_last_week && has(self.last, day))
            || nth.is_some_and(|days| has(*days, day))
    }
}

/// The cron expressions of a periodic job, in its time zone.
#[derive(Clone, Debug)]
pub struct Schedule {
    crons: Vec<Cron>,
    zone: TimeZone,
}

impl Schedule {
    /// Creates a schedule from these expressions. An empty zone name means UTC.
    ///
    /// # Errors
    /// An expression is invalid, or this host has no such time zone.
    pub fn new<'a>(crons: impl IntoIterator<Item = &'a str>, zone: &str) -> Result<Self, CronError> {
        let crons = crons.into_iter().map(Cron::parse).collect::<Result<_, _>>()?;
        Ok(Self { crons, zone: self::zone(zone)? })
    }

    /// Returns the first time after `after` that any of the expressions matches.
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        self.crons.iter().filter_map(|cron| cron.next_after(after, &self.zone)).min()
    }
}

/// Returns the time zone with this name.
///
/// # Errors
/// This host has no such time zone.
pub fn zone(name: &str) -> Result<TimeZone, CronError> {
    match name {
        "" | "UTC" => Ok(TimeZone::UTC),
        name => TimeZone::get(name).map_err(|_| CronError::Zone(name.to_owned())),
    }
}
