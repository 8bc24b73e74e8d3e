//! The verbs: arguments, tables, monitors, exit codes.
