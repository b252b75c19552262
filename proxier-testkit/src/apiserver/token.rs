//! Continue tokens: where the next page of a list begins, opaque to clients.

use data_encoding::BASE64URL_NOPAD;
use serde::Deserialize;

use super::json;

/// What a token says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    /// The version the list is of; `None` for a list that goes on at the newest.
    pub(super) version: Option<u64>,
    /// Where the page begins, below the collection's or the namespace's prefix, without the leading slash.
    pub(super) start: String,
}

/// The words inside.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
struct Inner {
    #[serde(default)]
    v: String,
    #[serde(default)]
    rv: i64,
    #[serde(default)]
    start: String,
}

const FORMAT: &str = "meta.k8s.io/v1";

impl Token {
    /// The token of a page that begins after `last`. The server that was recorded writes a slash before the key of a page
    /// it cut itself ([`Self::after`]) and none in the token by which it offers to go on ([`Self::newest`]).
    pub(super) fn after(version: u64, last: &str) -> String {
        encode(&version.to_string(), &format!("/{last}\0"))
    }

    /// The token by which the same list goes on with the newest objects.
    pub(super) fn newest(&self) -> String {
        encode("-1", &self.start)
    }

    /// Reads a token; the error is the message for the client.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let invalid = |why: String| format!("invalid continue token: continue key is not valid: {why}");
        let bytes = BASE64URL_NOPAD
            .decode(text.as_bytes())
            .or_else(|error| lenient(text).ok_or(error))
            .map_err(|error| invalid(format!("illegal base64 data at input byte {}", error.position)))?;
        let inner: Inner = serde_json::from_slice(&bytes).map_err(|_| invalid(go_complaint(&bytes)))?;
        if inner.v != FORMAT {
            return Err(invalid("server does not recognize this encoded version".to_owned()));
        }
        let version = match inner.rv {
            0 => return Err(invalid("incorrect encoded start resourceVersion".to_owned())),
            rv => u64::try_from(rv).ok(),
        };
        Ok(Self { version, start: inner.start.trim_start_matches('/').to_owned() })
    }
}

/// Go ignores bits left over after the last byte.
fn lenient(text: &str) -> Option<Vec<u8>> {
    let mut spec = BASE64URL_NOPAD.specification();
    spec.check_trailing_bits = false;
    spec.encoding().ok()?.decode(text.as_bytes()).ok()
}

fn encode(version: &str, start: &str) -> String {
    let mut out = format!(r#"{{"v":"{FORMAT}","rv":{version},"start":"#).into_bytes();
    json::write_string(&mut out, start);
    out.push(b'}');
    BASE64URL_NOPAD.encode(&out)
}

/// What Go's decoder says about text that is not JSON, as far as its first letter shows it.
fn go_complaint(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    match text.trim_start().chars().next() {
        Some(c) if !"{[\"-tfn0123456789".contains(c) => {
            format!("invalid character '{c}' looking for beginning of value")
        }
        _ => "unexpected end of JSON input".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_comes_back() {
        let token = Token::parse(&Token::after(7, "web/front")).unwrap();
        assert_eq!(token, Token { version: Some(7), start: "web/front\0".to_owned() });
        let newest = Token::parse(&token.newest()).unwrap();
        assert_eq!(newest, Token { version: None, ..token });
    }

    #[test]
    fn what_is_no_token_is_refused_in_gos_words() {
        let complaint = |text: &str| {
            let message = Token::parse(text).unwrap_err();
            message.strip_prefix("invalid continue token: continue key is not valid: ").unwrap().to_owned()
        };
        assert_eq!(complaint("abc"), "invalid character 'i' looking for beginning of value");
        assert_eq!(complaint("ab!d"), "illegal base64 data at input byte 2");
        assert_eq!(complaint("eyJ2"), "unexpected end of JSON input");
        assert_eq!(
            complaint(&BASE64URL_NOPAD.encode(b"{}")),
            "server does not recognize this encoded version"
        );
    }
}
