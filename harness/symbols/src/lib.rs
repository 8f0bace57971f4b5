//! Addresses to functions, files and lines, matched by build id
