//! Hashes of passwords, as htpasswd and its kin write them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest, Md5};
use sha_crypt::{PasswordHashRef, PasswordVerifier, ShaCrypt};
use sha1::Sha1;

/// Whether that is the password of this hash. A hash that cannot be read is nobody's.
pub fn verify(hash: &str, password: &[u8]) -> bool {
    if let Some(clear) = hash.strip_prefix("{PLAIN}") {
        return equal(clear.as_bytes(), password);
    }
    if let Some(wanted) = hash.strip_prefix("{SHA}") {
        return equal(wanted.as_bytes(), STANDARD.encode(Sha1::digest(password)).as_bytes());
    }
    for magic in ["$apr1$", "$1$"] {
        if let Some(rest) = hash.strip_prefix(magic) {
            let Some((salt, wanted)) = rest.split_once('$') else { return false };
            return equal(wanted.as_bytes(), md5_crypt(password, salt.as_bytes(), magic.as_bytes()).as_bytes());
        }
    }
    if hash.starts_with("$2") {
        return bcrypt::verify(password, hash).unwrap_or(false);
    }
    PasswordHashRef::new(hash).is_ok_and(|hash| ShaCrypt::SHA512.verify_password(password, hash).is_ok())
}

/// Whether computing it takes next to no time.
pub fn is_cheap(hash: &str) -> bool {
    hash.starts_with('{')
}

/// Takes as long for texts that differ at the beginning as at the end.
fn equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

/// The MD5 of crypt(3), and of Apache, which differ in their mark alone.
fn md5_crypt(password: &[u8], salt: &[u8], magic: &[u8]) -> String {
    let salt = &salt[..salt.len().min(8)];
    let mut outer = Md5::new();
    for part in [password, magic, salt] {
        outer.update(part);
    }
    let inner = Md5::digest([password, salt, password].concat());
    let mut left = password.len();
    while left > 0 {
        outer.update(&inner[..left.min(16)]);
        left = left.saturating_sub(16);
    }
    let mut bits = password.len();
    while bits > 0 {
        outer.update(if bits & 1 == 1 { &[0][..] } else { &password[..1] });
        bits >>= 1;
    }
    let mut sum = outer.finalize();
    for round in 0..1000 {
        let mut next = Md5::new();
        next.update(if round % 2 == 1 { password } else { &sum[..] });
        if round % 3 != 0 {
            next.update(salt);
        }
        if round % 7 != 0 {
            next.update(password);
        }
        next.update(if round % 2 == 1 { &sum[..] } else { password });
        sum = next.finalize();
    }
    let mut text = String::with_capacity(22);
    for [a, b, c] in [[0, 6, 12], [1, 7, 13], [2, 8, 14], [3, 9, 15], [4, 10, 5]] {
        letters(&mut text, u32::from(sum[a]) << 16 | u32::from(sum[b]) << 8 | u32::from(sum[c]), 4);
    }
    letters(&mut text, u32::from(sum[11]), 2);
    text
}

/// Six bits a letter, the lowest first.
fn letters(text: &mut String, mut bits: u32, count: usize) {
    const LETTERS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    for _ in 0..count {
        text.push(char::from(LETTERS[(bits & 63) as usize]));
        bits >>= 6;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by `openssl passwd` and `htpasswd`.
    const OF_OPEN_SESAME: &[&str] = &[
        "{PLAIN}open sesame",
        "{SHA}W8r/fyL/UzygmbNAjq2HbA67qac=",
        "$apr1$saltsalt$HIDXe7D36X22w1CH4M1cQ.",
        "$1$abcd$39O0.yr1y3kRxT4Wbf5Zo.",
        "$5$saltstring$sOFRiuqOzKEQCZAIFmMrCbPuMEMUPOi/BmBpBwWMgW3",
        "$6$saltstring$b4SOQO.YI.BXjgbKQa.97c9EQud0NW8Txr5rCRGsAucjEsL95TW5MDF/7KcC3bcG5NoxZbmB6Lh82fxg8soAZ0",
    ];

    #[test]
    fn every_kind_takes_its_password_and_no_other() {
        let bcrypt = bcrypt::hash("open sesame", 4).unwrap().replacen("$2b$", "$2y$", 1);
        for hash in OF_OPEN_SESAME.iter().copied().chain([bcrypt.as_str()]) {
            assert!(verify(hash, b"open sesame"), "{hash}");
            for wrong in ["open sesam", "open sesame ", "", "Open sesame"] {
                assert!(!verify(hash, wrong.as_bytes()), "{hash} {wrong:?}");
            }
        }
    }

    #[test]
    fn what_is_broken_is_nobodys() {
        for hash in
            ["", "$", "$apr1$", "$1$salt", "$2y$10$", "$5$", "$6$rounds=x$a$b", "$6$a", "plain", "{SHA}", "{MD5}x"]
        {
            for password in ["", "plain", "x"] {
                assert!(!verify(hash, password.as_bytes()), "{hash:?} {password:?}");
            }
        }
    }
}
