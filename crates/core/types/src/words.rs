//! Suggestions for misspelt names.

/// Returns the known name nearest to `name`, if its distance is small enough for a spelling mistake.
///
/// ```
/// assert_eq!(caravan_types::words::nearest("priorty", ["type", "priority"]), Some("priority"));
/// ```
#[must_use]
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (name.chars().count() / 3).clamp(1, 3);
    known
        .into_iter()
        .map(|k| (distance(name, k), k))
        .filter(|(d, _)| *d <= limit)
        .min_by_key(|(d, _)| *d)
        .map(|(_, k)| k)
}

/// Returns ` Did you mean "x"?`, or an empty text without a near name.
#[must_use]
pub fn suggestion<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, known).map(|near| format!(" Did you mean {near:?}?")).unwrap_or_default()
}

/// Returns the number of edits between two words. A swap of two neighbours is one edit.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(64).collect(), b.chars().take(64).collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let same = usize::from(a[i - 1] != b[j - 1]);
            row[j] = (rows[i - 1][j] + 1).min(row[j - 1] + 1).min(rows[i - 1][j - 1] + same);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(rows[i - 2][j - 2] + 1);
            }
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_names() {
        let known = ["priority", "datacenters", "type"];
        assert_eq!(nearest("priorty", known), Some("priority"));
        assert_eq!(nearest("tpye", known), Some("type"));
        assert_eq!(nearest("restarts", known), None);
        assert_eq!(suggestion("typ", known), " Did you mean \"type\"?");
        assert_eq!(suggestion("x", known), "");
    }
}
