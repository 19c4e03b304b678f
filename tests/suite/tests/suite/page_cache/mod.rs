//! Model files leave the page cache, and programs that read them notice nothing.
//! Touches: model files in the build output, the page cache.

mod alone;
mod behind;
mod filesystems;
mod loaders;
mod manners;
mod network;
mod share;
mod writers;
