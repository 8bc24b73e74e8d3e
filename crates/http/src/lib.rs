//! The HTTP API: routes, blocking queries, shapes and error texts.
