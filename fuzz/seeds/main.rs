//! Writes valid inputs of every target to corpus/<target>, for the fuzzer to begin with.

#[path = "../../crates/esker-format/tests/common/mod.rs"]
mod common;

fn main() -> std::io::Result<()> {
    for (name, _) in common::decoders::DECODERS {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
        std::fs::create_dir_all(&folder)?;
        for seed in 0..200 {
            let bytes = common::samples::valid(name, &mut common::Rng(seed));
            std::fs::write(folder.join(format!("seed-{seed}")), bytes)?;
        }
    }
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/trace");
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("seed-0"), include_bytes!("../../crates/esker-trace/tests/lines.txt"))
}
