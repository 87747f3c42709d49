//! Reports held against docs/lab.schema.json; for the tests of the lab and of the command.

use serde_json::Value;

/// Panics if a report, of one command or of all, is not as its schema says.
pub fn check(report: &Value) {
    let schema = match report["command"] == "all" {
        true => include_str!("../../../../docs/lab.all.schema.json"),
        false => REPORT,
    };
    conforms(report, &serde_json::from_str(schema).unwrap(), "report");
}

const REPORT: &str = include_str!("../../../../docs/lab.schema.json");

/// Checks the parts of JSON Schema that ours uses; what it does not know is an error.
fn conforms(value: &Value, schema: &Value, place: &str) {
    for (keyword, rule) in schema.as_object().unwrap() {
        match keyword.as_str() {
            "$schema" | "title" | "description" => {}
            "$ref" if rule == "lab.schema.json" => conforms(value, &serde_json::from_str(REPORT).unwrap(), place),
            "type" => {
                let names: Vec<&str> = rule.as_array().map_or_else(
                    || vec![rule.as_str().unwrap()],
                    |list| list.iter().map(|n| n.as_str().unwrap()).collect(),
                );
                let fits = |name: &&str| match *name {
                    "object" => value.is_object(),
                    "array" => value.is_array(),
                    "string" => value.is_string(),
                    "boolean" => value.is_boolean(),
                    "number" => value.is_number(),
                    "integer" => value.is_u64() || value.is_i64(),
                    "null" => value.is_null(),
                    other => panic!("schema of {place}: type {other}"),
                };
                assert!(names.iter().any(fits), "{place} is no {names:?}: {value}");
            }
            "enum" => assert!(rule.as_array().unwrap().contains(value), "{place} is {value}, not one of {rule}"),
            "required" => {
                for name in rule.as_array().unwrap() {
                    assert!(value.get(name.as_str().unwrap()).is_some(), "{place} lacks {name}");
                }
            }
            "properties" => {
                for (name, schema) in rule.as_object().unwrap() {
                    if let Some(value) = value.get(name) {
                        conforms(value, schema, &format!("{place}.{name}"));
                    }
                }
            }
            "additionalProperties" => {
                for (name, value) in value.as_object().unwrap() {
                    conforms(value, rule, &format!("{place}.{name}"));
                }
            }
            "items" => {
                for (n, value) in value.as_array().unwrap().iter().enumerate() {
                    conforms(value, rule, &format!("{place}[{n}]"));
                }
            }
            other => panic!("schema of {place}: keyword {other}"),
        }
    }
}
