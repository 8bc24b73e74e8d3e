//! Renders tables and blocks of `key = value` as aligned columns two spaces apart, without borders.

/// The text of an empty cell.
const NONE: &str = "<none>";

/// Rows of cells. Every cell except the last of a row is padded to the width of its column.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    keep_empty: bool,
}

impl Table {
    /// Creates a table with a heading.
    pub(crate) fn new(heading: &[&str]) -> Self {
        Self { rows: vec![heading.iter().map(|&cell| cell.to_owned()).collect()], keep_empty: false }
    }

    /// Shows empty cells as empty instead of `<none>`.
    pub(crate) fn keep_empty(mut self) -> Self {
        self.keep_empty = true;
        self
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Adds rows.
    pub(crate) fn rows(mut self, rows: impl IntoIterator<Item = Vec<String>>) -> Self {
        self.rows.extend(rows);
        self
    }

    /// Renders the table, without a newline at the end.
    pub(crate) fn render(&self) -> String {
        let cell = |text: &str| match text {
            "" if !self.keep_empty => NONE.to_owned(),
            text => text.to_owned(),
        };
        let rows: Vec<Vec<String>> =
            self.rows.iter().map(|row| row.iter().map(|text| cell(text)).collect()).collect();
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|n| rows.iter().filter_map(|row| row.get(n)).map(|text| width(text)).max().unwrap_or(0))
            .collect();
        let line = |row: &Vec<String>| {
            let mut out = String::new();
            for (n, text) in row.iter().enumerate() {
                out.push_str(text);
                if n + 1 < row.len() {
                    out.push_str(&" ".repeat(widths[n] - width(text) + 2));
                }
            }
            out
        };
        rows.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

/// Key and value pairs with aligned equals signs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pairs(Vec<(String, String)>);

impl Pairs {
    /// Creates a block without pairs.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Returns the block with one more pair. An empty value shows as `<none>`.
    pub(crate) fn pair(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.push(key, value);
        self
    }

    /// Adds a pair.
    pub(crate) fn push(&mut self, key: impl Into<String>, value: impl Into<String>) {
        self.0.push((key.into(), value.into()));
    }

    /// Renders the pairs, without a newline at the end.
    pub(crate) fn render(&self) -> String {
        let longest = self.0.iter().map(|(key, _)| width(key)).max().unwrap_or(0);
        let line = |(key, value): &(String, String)| {
            let value = if value.is_empty() { NONE } else { value };
            format!("{key}{} = {value}", " ".repeat(longest - width(key)))
        };
        self.0.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

fn width(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn columns_line_up_and_the_last_cell_is_not_padded() {
        let mut table = Table::new(&["ID", "Status"]);
        table.row(vec!["web".into(), "running".into()]);
        table.row(vec!["x".into(), String::new()]);
        assert_eq!(table.render(), "ID   Status\nweb  running\nx    <none>");
    }

    #[test]
    fn empty_cells_can_stay_empty() {
        let table = Table::new(&["A", "B"]).keep_empty().rows([vec!["1".into(), String::new()]]);
        assert_eq!(table.render(), "A  B\n1  ");
    }

    #[test]
    fn pairs_line_up() {
        let text = Pairs::new().pair("ID", "web").pair("Node Pool", "").render();
        assert_eq!(text, "ID        = web\nNode Pool = <none>");
    }

    proptest! {
        #[test]
        fn a_column_begins_at_the_same_place_in_every_row(
            rows in prop::collection::vec(prop::collection::vec("[a-zäß]{1,9}", 3), 1..6)
        ) {
            let table = Table::new(&["One", "Two", "Three"]).rows(rows.clone());
            let text = table.render();
            let lines: Vec<Vec<char>> = text.lines().map(|l| l.chars().collect()).collect();
            let place = |line: &[char], word: &str, from: usize| {
                let word: Vec<char> = word.chars().collect();
                line[from..].starts_with(&word)
            };
            let second = text.lines().next().unwrap().find("Two").unwrap();
            let third = text.lines().next().unwrap().find("Three").unwrap();
            for (line, row) in lines[1..].iter().zip(&rows) {
                prop_assert!(place(line, &row[0], 0) && place(line, &row[1], second) && place(line, &row[2], third));
            }
        }
    }
}
