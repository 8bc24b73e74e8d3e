//! Small languages: constraints and versions, runtime interpolation, sizes and durations, and later filter expressions and cron.
