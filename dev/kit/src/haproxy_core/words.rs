//! A command's words: blanks separate, a backslash takes away what the next character means.

/// A command, taken apart.
pub(super) struct Command {
    pub words: Vec<String>,
    pub payload: Option<String>,
}

impl Command {
    /// None: it is none.
    pub fn of(text: &str) -> Option<Self> {
        let (line, rest) = text.split_once('\n').unwrap_or((text, ""));
        let (line, payload) = match line.rsplit_once("<<") {
            Some((line, end)) if !line.ends_with('\\') => {
                let end = format!("{end}\n");
                // What follows would be read as commands.
                (line, Some(rest.strip_suffix(end.as_str())?.to_owned()))
            }
            _ if rest.is_empty() => (line, None),
            _ => return None,
        };
        let (mut words, mut word, mut escaped) = (Vec::new(), String::new(), false);
        for c in line.chars() {
            match c {
                c if std::mem::take(&mut escaped) => word.push(c),
                '\\' => escaped = true,
                // Another command behind it.
                ';' => return None,
                ' ' if word.is_empty() => {}
                ' ' => words.push(std::mem::take(&mut word)),
                c => word.push(c),
            }
        }
        if !word.is_empty() {
            words.push(word);
        }
        // With more the rest is dropped.
        (!words.is_empty() && words.len() <= 64 && line.len() < 16_000).then_some(Self { words, payload })
    }
}
