//! The README's example, word for word, can be run again and again.

#![allow(clippy::unwrap_used)]

#[rustfmt::skip]
fn example() -> esker::Result<()> {
    // README
    use esker::{Engine, Error, Schema, Type};

    let engine = Engine::open_dir("data")?;
    let schema = Schema::new().column("id", Type::U64).nullable("name", Type::Text(100));
    let people = match engine.create("people", &schema) {
        Err(Error::TableExists(_)) => engine.open_table("people")?, // since the first run
        created => created?,
    };

    let mut session = engine.session();
    session.insert(&people, &[1u64.into(), "Ada".into()])?;
    session.commit()?; // durable

    let mut rows = session.rows(&people)?;
    while let Some(row) = rows.next()? {
        println!("{} {:?}", row.get::<u64>("id")?, row.get::<Option<&str>>("name")?);
    }
    // README
    Ok(())
}

#[test]
fn the_readmes_example_runs_twice() {
    let body = include_str!("readme.rs").split("    // README\n").nth(1).unwrap();
    let shown: String = body.lines().map(|line| line.strip_prefix("    ").unwrap_or(line).to_owned() + "\n").collect();
    assert!(
        include_str!("../../../README.md").contains(&format!("```rust\n{shown}```\n")),
        "the README has another one"
    );
    let folder = std::env::temp_dir().join(format!("esker-readme-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    // The only test of its process.
    std::env::set_current_dir(&folder).unwrap();
    (0..2).for_each(|_| example().unwrap());
    let engine = esker::Engine::open_dir("data").unwrap();
    assert_eq!(engine.session().count(&engine.open_table("people").unwrap()).unwrap(), 2);
    std::fs::remove_dir_all(&folder).unwrap();
}
