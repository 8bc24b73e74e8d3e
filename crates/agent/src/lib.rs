//! Configuration files and the wiring of server, client and HTTP into one process.
