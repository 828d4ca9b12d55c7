//! The broker's side of the seam: sessions with a real Artemis, and the proof that the stand-in answers like it.

mod peer;
mod sessions;
mod transcript;
mod transport;
