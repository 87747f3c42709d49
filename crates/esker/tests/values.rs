//! Tables with a schema: values in and out, across a restart, and what is refused.

use esker::{Engine, Error, Schema, Type, Value};

struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("esker-values-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        Folder(dir)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn schema() -> Schema {
    Schema::new()
        .column("id", Type::I64)
        .nullable("size", Type::U64)
        .column("ratio", Type::F64)
        .nullable("name", Type::Text(20))
        .nullable("data", Type::Bytes(1 << 20))
}

#[test]
fn values_come_back_as_they_went_in_after_a_restart_too() {
    let folder = Folder::new("back");
    let long = vec![7u8; 300_000];
    let rows = [
        [(-1i64).into(), u64::MAX.into(), (-0.0).into(), "Ada".into(), (&long).into()],
        [i64::MAX.into(), Value::Null, f64::NAN.into(), Value::Null, Value::Null],
        [0i64.into(), 0u64.into(), f64::MIN_POSITIVE.into(), "".into(), (&[][..]).into()],
    ];
    let engine = Engine::open_dir(&folder.0).unwrap();
    let table = engine.create("t", &schema()).unwrap();
    let mut session = engine.session();
    let ids: Vec<_> = rows.iter().map(|r| session.insert(&table, r).unwrap()).collect();
    let changed = [5i64.into(), Value::Null, 0.5.into(), "Grace".into(), Value::Null];
    session.update(&table, ids[1], &changed).unwrap();
    session.commit().unwrap();
    drop((session, table));
    engine.close().unwrap();

    let engine = Engine::open_dir(&folder.0).unwrap();
    let table = engine.open_table("t").unwrap();
    assert_eq!(table.schema(), Some(&schema()));
    let mut session = engine.session();
    let mut found = session.rows(&table).unwrap();
    for (id, wanted) in ids.iter().zip([&rows[0], &changed, &rows[2]]) {
        let row = found.next().unwrap().unwrap();
        assert_eq!((row.id(), &row.values().unwrap()[..]), (*id, &wanted[..]));
        let name: Option<&str> = row.get("name").unwrap();
        assert_eq!(Value::from(name), wanted[3]);
        assert_eq!(Value::from(row.get::<i64>("id").unwrap()), wanted[0]);
    }
    assert!(found.next().unwrap().is_none());
    drop(session);
    engine.close().unwrap();
}

#[test]
fn what_does_not_fit_is_refused_by_its_column_and_changes_nothing() {
    let folder = Folder::new("refused");
    let engine = Engine::open_dir(&folder.0).unwrap();
    assert!(matches!(engine.create("none", &Schema::new()), Err(Error::InvalidArgument(_))));
    let table = engine.create("t", &schema()).unwrap();
    let mut session = engine.session();
    let good: [Value<'_>; 5] = [1i64.into(), Value::Null, 1.0.into(), Value::Null, Value::Null];
    let long = "x".repeat(21);
    let with = |at: usize, value| {
        let mut row = good;
        row[at] = value;
        row
    };
    for (row, column) in [
        (with(0, Value::Null), "'id'"),
        (with(0, 1u64.into()), "'id'"),
        (with(1, (-1i64).into()), "'size'"),
        (with(2, "1.0".into()), "'ratio'"),
        (with(3, (&long).into()), "'name'"),
        (with(4, "text".into()), "'data'"),
    ] {
        let refused = session.insert(&table, &row).unwrap_err();
        assert!(matches!(&refused, Error::InvalidArgument(why) if why.contains(column)), "{column}: {refused}");
    }
    assert!(session.insert(&table, &good[..4]).is_err(), "a value is missing");
    session.insert(&table, &good).unwrap();
    session.commit().unwrap();
    let mut rows = session.rows(&table).unwrap();
    let row = rows.next().unwrap().unwrap();
    for refused in [
        row.get::<u64>("id").map(drop),
        row.get::<i64>("no").map(drop),
        row.get::<&str>("name").map(drop), // it is NULL
    ] {
        assert!(matches!(refused, Err(Error::InvalidArgument(_))));
    }
    assert_eq!(row.get::<Option<String>>("name").unwrap(), None);
    assert!(rows.next().unwrap().is_none(), "a refused row was inserted");
}
