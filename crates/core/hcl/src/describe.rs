//! Describes the job language from the tables that parse it: as a page for people, and as a JSON Schema for editors.

mod page;
mod schema;

pub use self::page::page;
pub use self::schema::json_schema;

use crate::schema::{Content, Schema};

/// A table with the blocks that contain it, the shortest path first.
struct Place {
    schema: &'static Schema,
    /// Paths from the job to the block, such as `job > group > task`.
    ways: Vec<Vec<&'static str>>,
}

/// Returns all tables of the job language, each once, a block before its inner blocks.
fn places() -> Vec<Place> {
    let mut out: Vec<Place> = Vec::new();
    let mut queue = vec![(&crate::job::tables::JOB, vec!["job"])];
    let mut at = 0;
    while let Some((schema, way)) = queue.get(at).cloned() {
        at += 1;
        match out.iter_mut().find(|place| std::ptr::eq(place.schema, schema)) {
            Some(place) => {
                place.ways.push(way);
                continue;
            }
            None => out.push(Place { schema, ways: vec![way.clone()] }),
        }
        for block in schema.blocks {
            if let Content::Schema(inner) = block.content {
                let mut way = way.clone();
                way.push(block.name);
                queue.push((inner, way));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests;
