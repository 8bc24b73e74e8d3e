//! Checked-in generated code for CSI (written from the wire tables) and its protobuf files.
