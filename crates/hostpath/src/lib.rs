//! The bundled CSI plugin: directories, or loop-mounted file system images when a size is to be enforced.
