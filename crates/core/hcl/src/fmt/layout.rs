//! Computes the spaces before each token.
//!
//! The layout equals that of the tools that users of the language have, so a file that these tools formatted stays
//! unchanged.

use super::lex::{Kind, Token};
use std::ops::Range;

/// A line: its first tokens, an assignment that ends on the line, and a trailing comment. The three ranges are
/// consecutive.
#[derive(Debug)]
struct Line {
    lead: Range<usize>,
    /// The tokens from the equals sign on, if the assignment ends on this line.
    assign: Range<usize>,
    comment: Range<usize>,
}

/// Sets the spaces before all tokens.
pub(super) fn arrange(tokens: &mut [Token<'_>]) {
    let lines = lines(tokens);
    indent(tokens, &lines);
    for line in &lines {
        space(tokens, line.lead.clone());
        space(tokens, line.assign.clone());
    }
    align(tokens, &lines, |line| &line.assign, |line| line.lead.clone());
    align(tokens, &lines, |line| &line.comment, |line| line.lead.start..line.assign.end);
}

fn lines(tokens: &[Token<'_>]) -> Vec<Line> {
    let mut out = Vec::new();
    let mut start = 0;
    while start < tokens.len() {
        let end =
            tokens[start..].iter().position(|t| t.kind.ends_line()).map_or(tokens.len(), |i| start + i + 1);
        let has_comment = end - start > 1 && tokens[end - 1].kind == Kind::LineComment;
        let code_end = if has_comment { end - 1 } else { end };
        let mut lead_end = code_end;
        let equal = (start + 1..code_end).find(|i| tokens[*i].kind == Kind::Equal);
        if let Some(equal) = equal
            && nesting(&tokens[equal..code_end]) == 0
        {
            lead_end = equal;
        }
        out.push(Line { lead: start..lead_end, assign: lead_end..code_end, comment: code_end..end });
        start = end;
    }
    out
}

fn nesting(tokens: &[Token<'_>]) -> i32 {
    tokens.iter().map(|t| t.kind.nesting()).sum()
}

/// Indents the lines. A line that opens any number of brackets indents the next lines by one level. Closing lines go
/// back by as many levels as they close lines.
fn indent(tokens: &mut [Token<'_>], lines: &[Line]) {
    let mut levels: Vec<i32> = Vec::new();
    for line in lines {
        let first = line.lead.start;
        if tokens[first].kind == Kind::Newline {
            continue;
        }
        let opened = nesting(&tokens[first..line.assign.end]);
        let mut closed = -opened;
        while closed > 0 {
            let Some(level) = levels.last_mut() else { break };
            if closed >= *level {
                closed -= *level;
                levels.pop();
            } else {
                *level -= closed;
                closed = 0;
            }
        }
        tokens[first].spaces = 2 * levels.len();
        if opened > 0 {
            levels.push(opened);
        }
    }
}

fn space(tokens: &mut [Token<'_>], range: Range<usize>) {
    for at in range.clone().skip(1) {
        let before = (at >= range.start + 2).then(|| tokens[at - 2].kind);
        tokens[at].spaces = usize::from(apart(before, &tokens[at - 1], &tokens[at]));
    }
}

/// Returns whether a space separates two tokens of a line; `before` is the token before `left`.
fn apart(before: Option<Kind>, left: &Token<'_>, right: &Token<'_>) -> bool {
    use Kind::{
        Bang, CloseBrace, CloseHeredoc, CloseQuote, CloseTemplate, Colon, Comma, Dot, Ellipsis, Equal, Ident,
        Literal, Minus, Newline, Number, OpenBrace, OpenBracket, OpenHeredoc, OpenParen, OpenQuote,
        OpenTemplate, Operator, Question,
    };
    match (left.kind, right.kind) {
        (_, Newline) => false,
        // Calls, member access, and the end of a list item.
        (Ident, OpenParen) | (Dot, _) | (_, Dot | Comma | Ellipsis) => false,
        (Comma, _) => true,
        // Literal text stays unchanged.
        (Literal | OpenQuote | OpenHeredoc, _) | (_, Literal | CloseQuote | CloseHeredoc) => false,
        // `in [` of a `for` expression is no index.
        (Ident, _) if left.text == "in" && before == Some(Ident) => true,
        (Ident | Number | CloseQuote, OpenBracket) => false,
        (kind, OpenBracket) if kind.nesting() < 0 => false,
        (Bang, _) => false,
        // A minus is a sign, unless the previous token can end an expression.
        (Minus, _) => !matches!(
            before,
            None | Some(
                OpenParen
                    | OpenBrace
                    | OpenBracket
                    | OpenTemplate
                    | Equal
                    | Colon
                    | Comma
                    | Question
                    | Minus
                    | Bang
                    | Operator
            )
        ),
        (OpenBrace, CloseBrace) => false,
        (OpenBrace, _) | (_, CloseBrace) => true,
        (OpenTemplate, OpenBrace) | (CloseBrace, CloseTemplate) => true,
        (CloseTemplate, OpenTemplate) => false,
        (left, _) if left.nesting() > 0 => false,
        (_, right) if right.nesting() < 0 => false,
        _ => true,
    }
}

/// Aligns the given ranges of adjacent lines in columns.
fn align(
    tokens: &mut [Token<'_>],
    lines: &[Line],
    cell: impl Fn(&Line) -> &Range<usize>,
    before: impl Fn(&Line) -> Range<usize>,
) {
    for group in lines.chunk_by(|a, b| cell(a).is_empty() == cell(b).is_empty()) {
        let widths: Vec<usize> = group.iter().map(|line| width(&tokens[before(line)])).collect();
        let longest = widths.iter().copied().max().unwrap_or(0);
        for (line, width) in group.iter().zip(widths) {
            if let Some(token) = tokens[cell(line).clone()].first_mut() {
                token.spaces = longest - width + 1;
            }
        }
    }
}

fn width(tokens: &[Token<'_>]) -> usize {
    tokens.iter().map(|token| token.spaces + token.text.chars().count()).sum()
}
