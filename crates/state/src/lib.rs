//! Tables over persistent maps, secondary indexes, apply(command), watches, snapshots, event feed.
