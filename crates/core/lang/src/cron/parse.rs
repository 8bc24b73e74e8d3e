//! Parses the fields of a cron expression.

use super::{Cron, CronError, Days, Weekdays, YEARS};

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];
const DAYS: [&str; 7] = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];

/// The name, range and value names of a field.
struct Field {
    name: &'static str,
    least: u16,
    most: u16,
    names: &'static [&'static str],
}

const SECOND: Field = Field { name: "second", least: 0, most: 59, names: &[] };
const MINUTE: Field = Field { name: "minute", least: 0, most: 59, names: &[] };
const HOUR: Field = Field { name: "hour", least: 0, most: 23, names: &[] };
const DAY: Field = Field { name: "day-of-month", least: 1, most: 31, names: &[] };
const MONTH: Field = Field { name: "month", least: 1, most: 12, names: &MONTHS };
// 7 is Sunday too.
const WEEKDAY: Field = Field { name: "day-of-week", least: 0, most: 7, names: &DAYS };
const YEAR: Field = Field { name: "year", least: 1970, most: 2099, names: &[] };

pub(super) fn parse(text: &str) -> Result<Cron, CronError> {
    let text = text.trim();
    let text = match text {
        "@annually" | "@yearly" => "0 0 0 1 1 * *",
        "@monthly" => "0 0 0 1 * * *",
        "@weekly" => "0 0 0 * * 0 *",
        "@daily" | "@midnight" => "0 0 0 * * * *",
        "@hourly" => "0 0 * * * * *",
        other if other.starts_with('@') => return Err(CronError::Shorthand(other.to_owned())),
        other => other,
    };
    let mut fields: Vec<&str> = text.split_whitespace().collect();
    match fields.len() {
        0..5 => return Err(CronError::Missing),
        5 => {
            fields.insert(0, "0");
            fields.push("*");
        }
        6 => fields.insert(0, "0"),
        7 => {}
        _ => return Err(CronError::TooMany),
    }
    let [second, minute, hour, day, month, weekday, year] =
        <[&str; 7]>::try_from(fields).map_err(|_| CronError::TooMany)?;
    Ok(Cron {
        seconds: SECOND.bits(second)?,
        minutes: MINUTE.bits(minute)?,
        hours: HOUR.bits(hour)?,
        days: days(day)?,
        months: MONTH.bits(month)?,
        weekdays: weekdays(weekday)?,
        years: {
            let mut years = vec![false; YEARS.count()];
            YEAR.each(year, |found| {
                if let Some(year) = years.get_mut(usize::from(found - YEAR.least)) {
                    *year = true;
                }
            })?;
            years
        },
    })
}

impl Field {
    fn wrong(&self, text: &str) -> CronError {
        CronError::Field { field: self.name, text: text.to_owned() }
    }

    fn bits(&self, text: &str) -> Result<u64, CronError> {
        let mut bits = 0;
        self.each(text, |value| bits |= 1 << value)?;
        Ok(bits)
    }

    /// Passes every value of a list to `found`.
    fn each(&self, text: &str, mut found: impl FnMut(u16)) -> Result<(), CronError> {
        text.split(',').try_for_each(|part| self.part(part, &mut found))
    }

    /// Passes every value of one list element to `found`: `*`, `5` or `2-6`, each with an optional step `/2`. A step
    /// after a single value continues to the maximum.
    fn part(&self, part: &str, found: &mut impl FnMut(u16)) -> Result<(), CronError> {
        let wrong = || self.wrong(part);
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(number(step).filter(|step| *step > 0).ok_or_else(wrong)?)),
            None => (part, None),
        };
        let (from, to) = match range {
            "*" | "?" => (self.least, self.most),
            range => match range.split_once('-') {
                Some((from, to)) => (self.value(from).ok_or_else(wrong)?, self.value(to).ok_or_else(wrong)?),
                None => {
                    let value = self.value(range).ok_or_else(wrong)?;
                    (value, if step.is_some() { self.most } else { value })
                }
            },
        };
        if from > to {
            return Err(wrong());
        }
        (from..=to).step_by(usize::from(step.unwrap_or(1))).for_each(found);
        Ok(())
    }

    /// Parses a number or a name, which may be shortened to three letters.
    fn value(&self, text: &str) -> Option<u16> {
        if let Some(number) = number(text) {
            return (self.least..=self.most).contains(&number).then_some(number);
        }
        let text = text.to_ascii_lowercase();
        let index =
            self.names.iter().position(|name| *name == text || name.get(..3) == Some(text.as_str()))?;
        u16::try_from(index).ok().map(|index| index + self.least)
    }
}

/// Parses plain digits.
fn number(text: &str) -> Option<u16> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

fn is_any(text: &str) -> bool {
    matches!(text, "*" | "?")
}

fn days(text: &str) -> Result<Days, CronError> {
    let mut days = Days { any: is_any(text), ..Days::default() };
    for part in text.split(',') {
        match part.to_ascii_uppercase().as_str() {
            "L" => days.last = true,
            "LW" | "WL" => days.last_workday = true,
            upper => match upper.strip_suffix('W') {
                Some(day) => days.nearest_workday |= 1 << DAY.value(day).ok_or_else(|| DAY.wrong(part))?,
                None => DAY.part(part, &mut |day| days.plain |= 1 << day)?,
            },
        }
    }
    Ok(days)
}

fn weekdays(text: &str) -> Result<Weekdays, CronError> {
    let mut weekdays = Weekdays { any: is_any(text), ..Weekdays::default() };
    let one = |day: &str, part: &str| {
        Ok::<_, CronError>(WEEKDAY.value(day).ok_or_else(|| WEEKDAY.wrong(part))? % 7)
    };
    for part in text.split(',') {
        if let Some((day, week)) = part.split_once('#') {
            let week = number(week).and_then(|week| week.checked_sub(1)).map(usize::from);
            let week = week.and_then(|week| weekdays.nth.get_mut(week)).ok_or_else(|| WEEKDAY.wrong(part))?;
            *week |= 1 << one(day, part)?;
        } else if let Some(day) = part.strip_suffix(['L', 'l']) {
            // `L` alone is the last day of the week.
            match day {
                "" => weekdays.plain |= 1 << 6,
                day => weekdays.last |= 1 << one(day, part)?,
            }
        } else {
            WEEKDAY.part(part, &mut |day| weekdays.plain |= 1 << (day % 7))?;
        }
    }
    Ok(weekdays)
}
