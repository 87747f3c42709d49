"""How Rust's tests are built: optimized like the plugin, with assertions and overflow checks, without link-time
optimization, which each test program would pay for. Without line tables: five sixths of a test program were these, and a
panic names its line without them."""

PROFILE = ["--profile", "checked", "--config", 'profile.checked.inherits="release"', "--config", "profile.checked.lto=false",
           "--config", "profile.checked.codegen-units=16", "--config", "profile.checked.incremental=false", "--config", "profile.checked.debug=false",
           "--config", "profile.checked.debug-assertions=true", "--config", "profile.checked.overflow-checks=true",
           # what writes the C boundary's header, in one test: most of a minute of optimizing
           "--config", "profile.checked.package.cbindgen.opt-level=0", "--config", "profile.checked.package.syn.opt-level=0"]
