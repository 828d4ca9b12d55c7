//! As much of HTTP/2 as tests need, on both sides: small messages, headers that change no table.

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// What a client begins with.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;

const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;

/// Names and values, in order.
pub type Fields = Vec<(String, String)>;

/// A request or an answer.
#[derive(Clone, Debug, Default)]
pub struct Message {
    /// Those with a colon first.
    pub headers: Fields,
    pub body: Vec<u8>,
    pub trailers: Fields,
}

impl Message {
    pub fn get(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

/// The first thing that either side says; a server has read the client's preface before.
pub async fn begin<S: AsyncWrite + Unpin>(stream: &mut S) -> Result<()> {
    // No table of headers, and nobody pushes.
    let settings = [0, 1, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0];
    write(stream, SETTINGS, 0, 0, &settings).await
}

/// Sends a message; the body is said to have ended by a frame of its own, if it has any.
pub async fn send<S: AsyncWrite + Unpin>(stream: &mut S, id: u32, message: &Message) -> Result<()> {
    let ends = |last: bool| if last { END_STREAM } else { 0 };
    let bare = message.trailers.is_empty();
    let flags = END_HEADERS | ends(message.body.is_empty() && bare);
    write(stream, HEADERS, flags, id, &encode(&message.headers)).await?;
    if !message.body.is_empty() {
        write(stream, DATA, ends(bare), id, &message.body).await?;
    }
    if !bare {
        write(stream, HEADERS, END_HEADERS | END_STREAM, id, &encode(&message.trailers)).await?;
    }
    Ok(())
}

/// Reads until a message has ended; none: the other side has ended the connection.
pub async fn receive<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S) -> Result<Option<(u32, Message)>> {
    let mut message = Message::default();
    loop {
        let mut head = [0; 9];
        match stream.read_exact(&mut head).await {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other.context("a frame")?,
        };
        let (kind, flags) = (head[3], head[4]);
        let id = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
        let mut payload = vec![0; usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2])];
        stream.read_exact(&mut payload).await?;
        let mut payload = payload.as_slice();
        match kind {
            SETTINGS | PING if flags & ACK == 0 => {
                let echo = if kind == PING { payload } else { &[] };
                write(stream, kind, ACK, 0, echo).await?;
            }
            DATA | HEADERS => {
                if flags & PADDED != 0 {
                    let padding = usize::from(payload[0]);
                    payload = &payload[1..payload.len() - padding];
                }
                if kind == DATA {
                    message.body.extend_from_slice(payload);
                } else {
                    ensure!(flags & END_HEADERS != 0, "headers in several frames");
                    let fields = decode(if flags & PRIORITY == 0 { payload } else { &payload[5..] })?;
                    if message.headers.is_empty() { message.headers = fields } else { message.trailers = fields }
                }
                if flags & END_STREAM != 0 {
                    return Ok(Some((id, message)));
                }
            }
            RESET => bail!("the stream was reset: {payload:?}"),
            GO_AWAY => bail!("the other side goes away: {payload:?}"),
            _ => {}
        }
    }
}

async fn write<S: AsyncWrite + Unpin>(stream: &mut S, kind: u8, flags: u8, id: u32, payload: &[u8]) -> Result<()> {
    let length = u32::try_from(payload.len())?.to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(id.to_be_bytes());
    frame.extend(payload);
    stream.write_all(&frame).await?;
    stream.flush().await?;
    Ok(())
}

/// Every field as it is, not to be remembered.
fn encode(fields: &Fields) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.push(0);
        for text in [name, value] {
            let length = text.len();
            if length < 127 {
                out.push(u8::try_from(length).unwrap());
            } else {
                out.push(127);
                let mut rest = length - 127;
                while rest >= 128 {
                    out.push(u8::try_from(rest % 128).unwrap() | 128);
                    rest /= 128;
                }
                out.push(u8::try_from(rest).unwrap());
            }
            out.extend(text.as_bytes());
        }
    }
    out
}

fn decode(mut bytes: &[u8]) -> Result<Fields> {
    let mut fields = Fields::new();
    while let Some(first) = bytes.first().copied() {
        if first & 0x80 != 0 {
            let index = number(&mut bytes, 7)?;
            let (name, value) = known(index)?;
            fields.push((name.to_owned(), value.to_owned()));
            continue;
        }
        let bits = if first & 0x40 != 0 { 6 } else { 4 };
        let index = number(&mut bytes, if first & 0xe0 == 0x20 { 5 } else { bits })?;
        if first & 0xe0 == 0x20 {
            // The size of a table that we do not have.
            continue;
        }
        let name = if index == 0 { text(&mut bytes)? } else { known(index)?.0.to_owned() };
        fields.push((name, text(&mut bytes)?));
    }
    Ok(fields)
}

fn number(bytes: &mut &[u8], bits: u32) -> Result<usize> {
    let mut take = || -> Result<u8> {
        let (first, rest) = bytes.split_first().context("cut off")?;
        *bytes = rest;
        Ok(*first)
    };
    let limit = (1_usize << bits) - 1;
    let mut value = usize::from(take()?) & limit;
    if value == limit {
        for shift in (0..28).step_by(7) {
            let next = take()?;
            value += usize::from(next & 0x7f) << shift;
            if next & 0x80 == 0 {
                break;
            }
        }
    }
    Ok(value)
}

fn text(bytes: &mut &[u8]) -> Result<String> {
    ensure!(bytes.first().context("cut off")? & 0x80 == 0, "a text in Huffman's code");
    let length = number(bytes, 7)?;
    ensure!(length <= bytes.len(), "cut off");
    let (text, rest) = bytes.split_at(length);
    *bytes = rest;
    Ok(String::from_utf8(text.to_vec())?)
}

/// The table of RFC 7541, appendix A.
fn known(index: usize) -> Result<(&'static str, &'static str)> {
    const VALUES: [(&str, &str); 16] = [
        (":authority", ""),
        (":method", "GET"),
        (":method", "POST"),
        (":path", "/"),
        (":path", "/index.html"),
        (":scheme", "http"),
        (":scheme", "https"),
        (":status", "200"),
        (":status", "204"),
        (":status", "206"),
        (":status", "304"),
        (":status", "400"),
        (":status", "404"),
        (":status", "500"),
        ("accept-charset", ""),
        ("accept-encoding", "gzip, deflate"),
    ];
    const NAMES: &str = "accept-language accept-ranges accept access-control-allow-origin age allow authorization \
                         cache-control content-disposition content-encoding content-language content-length \
                         content-location content-range content-type cookie date etag expect expires from host if-match \
                         if-modified-since if-none-match if-range if-unmodified-since last-modified link location \
                         max-forwards proxy-authenticate proxy-authorization range referer refresh retry-after server \
                         set-cookie strict-transport-security transfer-encoding user-agent vary via www-authenticate";
    let at = index.checked_sub(1).context("no field has the index 0")?;
    let later = || NAMES.split(' ').filter(|name| !name.is_empty()).nth(at - VALUES.len()).map(|name| (name, ""));
    VALUES.get(at).copied().or_else(later).with_context(|| format!("a field that was to be remembered: {index}"))
}
