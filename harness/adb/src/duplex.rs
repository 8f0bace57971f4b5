//! The stream of a connection.

use tokio::io::{AsyncRead, AsyncWrite};

/// Both directions of a connection.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}
