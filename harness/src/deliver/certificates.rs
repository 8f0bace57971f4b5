//! Additional certificates to trust.

use std::path::Path;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

/// Every certificate of a PEM file.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let text = std::fs::read(path).map_err(|why| wrong(&why))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|why| wrong(&why))?;
    if found.is_empty() { Err(wrong(&"there is no certificate in it")) } else { Ok(found) }
}
