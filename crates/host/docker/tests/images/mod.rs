//! Images: pulled, loaded and removed.
