//! Percent-encoding of components of URLs and forms.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// All but the unreserved characters (RFC 3986, section 2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Returns a text with all but unreserved characters encoded: a segment of a path, a name or a value of a query.
pub fn encode(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// Returns a text encoded for a form (`application/x-www-form-urlencoded`): as [`encode`], with `+` for a space.
pub fn encode_form(text: &str) -> String {
    encode(text).replace("%20", "+")
}

/// Decodes sequences such as `%41`. Other uses of `%` stay; bytes that are not UTF-8 become U+FFFD.
pub fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// Decodes a name or a value of a query or a form: as [`decode`], with a space for `+`.
pub fn decode_form(text: &str) -> String {
    decode(&text.replace('+', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unreserved_characters_stay() {
        assert_eq!(encode("aZ09-._~"), "aZ09-._~");
        assert_eq!(encode("a b/c?d=e&\u{fc}%"), "a%20b%2Fc%3Fd%3De%26%C3%BC%25");
        assert_eq!(encode_form("x y+%20"), "x+y%2B%2520");
    }

    #[test]
    fn what_is_no_escape_stays() {
        assert_eq!(decode("%41%c3%BC+%"), "A\u{fc}+%");
        assert_eq!(decode("%4 %zz %+1 100%"), "%4 %zz %+1 100%");
        assert_eq!(decode("%ff"), "\u{fffd}");
        assert_eq!(decode_form("a+b%2Bc"), "a b+c");
    }

    #[test]
    fn decoding_undoes_encoding() {
        for text in ["", "a b", "\u{1f980}/%/+", "\0\n"] {
            assert_eq!(decode(&encode(text)), text);
            assert_eq!(decode_form(&encode_form(text)), text);
        }
    }
}
