//! Headers in the form in which HAProxy takes several at once: binary, in base64, as maps hold text only.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Names and values, for `set-headers-bin` and `add-headers-bin`.
pub fn fields(list: &[(Arc<str>, Arc<str>)]) -> String {
    let mut bytes = Vec::new();
    for (name, value) in list {
        // Names are lower case in HTTP/2.
        push(&mut bytes, name.to_ascii_lowercase().as_bytes());
        push(&mut bytes, value.as_bytes());
    }
    bytes.extend([0, 0]);
    base64(&bytes)
}

/// Names, for `del-headers-bin`.
pub fn names(list: &[Arc<str>]) -> String {
    let mut bytes = Vec::new();
    for name in list {
        push(&mut bytes, name.to_ascii_lowercase().as_bytes());
    }
    bytes.push(0);
    base64(&bytes)
}

/// A length in HAProxy's own form, and the bytes.
fn push(out: &mut Vec<u8>, bytes: &[u8]) {
    let mut length = bytes.len();
    if length < 240 {
        out.push(u8::try_from(length).unwrap_or(0));
    } else {
        let low = |n: usize| u8::try_from(n & 0xff).unwrap_or(0);
        out.push(low(length) | 240);
        length = (length - 240) >> 4;
        while length >= 128 {
            out.push(low(length) | 128);
            length = (length - 128) >> 7;
        }
        out.push(low(length));
    }
    out.extend_from_slice(bytes);
}

fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_all_lengths() {
        let cases = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")];
        for (plain, encoded) in cases {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }

    #[test]
    fn lengths_are_as_haproxy_reads_them() {
        let mut out = Vec::new();
        push(&mut out, &[b'a'; 239]);
        assert_eq!(out[0], 239);
        for (length, head) in [(240, vec![240, 0]), (300, vec![300_u16 as u8 | 240, 3]), (4096, vec![240, 241, 0])] {
            let mut out = Vec::new();
            push(&mut out, &vec![b'a'; length]);
            assert_eq!(&out[..out.len() - length], head, "{length}");
        }
        assert_eq!(fields(&[("X-A".into(), "1".into())]), base64(b"\x03x-a\x011\x00\x00"));
        assert_eq!(names(&["X-A".into()]), base64(b"\x03x-a\x00"));
    }
}
