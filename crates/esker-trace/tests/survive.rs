//! Any lines have a report: known ones in any order, with any numbers, and cut.

#[path = "common/survive.rs"]
mod survive;

use proptest::prelude::*;

/// A line, some of its numbers and letters replaced.
fn line() -> impl Strategy<Value = String> {
    let lines: Vec<&str> = include_str!("lines.txt").lines().collect();
    let number = prop_oneof![Just(u64::MAX / 1000), Just(u64::MAX), 0u64..5, any::<u64>()];
    let changes = proptest::collection::vec((any::<proptest::sample::Index>(), number), 0..4);
    (proptest::sample::select(lines), changes, any::<bool>()).prop_map(|(line, changes, same)| {
        let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        for (at, number) in changes {
            let at = at.index(words.len());
            if let Some((key, _)) = words[at].clone().split_once('=') {
                words[at] = format!("{key}={number}");
            }
        }
        let line = words.join(" ");
        // Of one statement, or of several.
        if same {
            line
        } else {
            line.replace("q=8841", "q=8842").replace("s=3", "s=4")
        }
    })
}

proptest! {
    #[test]
    fn any_lines_have_a_report(lines in proptest::collection::vec(line(), 0..40), cut in any::<proptest::sample::Index>()) {
        let text = lines.join("\n") + "\n";
        survive::survive(text.as_bytes());
        survive::survive(&text.as_bytes()[..cut.index(text.len())]);
    }
}

#[test]
fn sums_beyond_all_numbers_have_a_report() {
    let most = u64::MAX;
    let mut text = String::from("TRACE version=1 conn=1\nSTATEMENT q=1 tim=0\n");
    for _ in 0..3000 {
        text += &format!(
            "WAIT q=1 tim={0}.615 nam=read ela={0}.615 from=device block={most} blocks={most} bytes={most}\n",
            most / 1000
        );
        text += &format!("CALL q=1 tim=0 fn=f x={most} full={most}\n");
    }
    text +=
        &format!("END q=1 tim=0 ela=1 cpu={0}.615 events={most} dropped={most} overhead={0} worker={0}\n", most / 1000);
    survive::survive(text.as_bytes());
}
