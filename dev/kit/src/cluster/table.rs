//! Tables as `kubectl get` prints them.

/// What was printed, cell by cell: parted by ` | `, `-` where a cell is empty, `<age>` where it is an age. Cells begin where
/// the heads of their columns do; a table may follow another after an empty line, with columns of its own.
#[must_use]
pub fn cells(printed: &str) -> String {
    let mut columns: Vec<usize> = Vec::new();
    let mut lines = Vec::new();
    for line in printed.trim().lines() {
        if line.trim().is_empty() {
            columns.clear();
            lines.push(String::new());
            continue;
        }
        let line: Vec<char> = line.chars().collect();
        if columns.is_empty() {
            let begins = |at: usize| line[at] != ' ' && (at == 0 || line[at - 1] == ' ');
            columns = (0..line.len()).filter(|at| begins(*at)).collect();
        }
        let ends = columns.iter().skip(1).copied().chain([usize::MAX]);
        let cells = columns.iter().zip(ends).map(|(from, to)| {
            let cell: String = line.iter().take(to.min(line.len())).skip(*from).collect();
            match cell.trim() {
                "" => "-".to_owned(),
                cell if is_age(cell) => "<age>".to_owned(),
                cell => cell.to_owned(),
            }
        });
        lines.push(cells.collect::<Vec<_>>().join(" | "));
    }
    lines.join("\n")
}

fn is_age(cell: &str) -> bool {
    let mut rest = cell;
    while let Some(at) = rest.find(['d', 'h', 'm', 's']) {
        if at == 0 || !rest[..at].bytes().all(|byte| byte.is_ascii_digit()) {
            return false;
        }
        rest = &rest[at + 1..];
    }
    rest.is_empty() && !cell.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_cell_shows() {
        let table =
            "NAME   PLAN   READY   AGE\na             True    3m2s\nb      gold           5d\n\nNAME   KIND\nc\n";
        let wanted = "NAME | PLAN | READY | AGE\na | - | True | <age>\nb | gold | - | <age>\n\nNAME | KIND\nc | -";
        assert_eq!(cells(table), wanted);
    }
}
