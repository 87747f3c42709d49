//! Lists in the order in which things come first: they are short, so nothing is hashed.

/// Each value once.
pub(crate) fn distinct<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for value in values {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

/// The values of each key.
pub(crate) fn grouped<K: PartialEq, V>(pairs: impl IntoIterator<Item = (K, V)>) -> Vec<(K, Vec<V>)> {
    let mut found: Vec<(K, Vec<V>)> = Vec::new();
    for (key, value) in pairs {
        match found.iter_mut().find(|f| f.0 == key) {
            Some(group) => group.1.push(value),
            None => found.push((key, vec![value])),
        }
    }
    found
}
