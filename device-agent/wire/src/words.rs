//! The control page as both sides see it: words, and waking threads that wait for a word.

/// The words of a control page.
pub trait Words {
    /// Why access to a word fails.
    type Error;
    /// Reads a word; everything that was written before the value is visible from now on.
    ///
    /// # Errors
    /// The page is gone.
    fn load(&self, offset: usize) -> Result<u32, Self::Error>;
    /// Writes a word. Earlier writes become visible before it.
    ///
    /// # Errors
    /// The page is gone.
    fn store(&self, offset: usize, value: u32) -> Result<(), Self::Error>;
    /// Wakes all threads that wait for a word to change.
    ///
    /// # Errors
    /// The page is gone.
    fn wake(&self, offset: usize) -> Result<(), Self::Error>;
    /// Everything written before becomes visible to all before anything after it is read.
    fn barrier(&self);
}
