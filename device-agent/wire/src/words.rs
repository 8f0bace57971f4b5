//! The control page as both sides see it: words, and waking threads that wait for one.

/// The words of a control page.
pub trait Words {
    /// What can go wrong with a word.
    type Error;
    /// Reads a word; everything that was written before this value is visible from now on.
    ///
    /// # Errors
    /// The page is gone.
    fn load(&self, offset: usize) -> Result<u32, Self::Error>;
    /// Writes a word, after everything that was written before.
    ///
    /// # Errors
    /// The page is gone.
    fn store(&self, offset: usize, value: u32) -> Result<(), Self::Error>;
    /// Wakes all threads that wait for a word to change.
    ///
    /// # Errors
    /// The page is gone.
    fn wake(&self, offset: usize) -> Result<(), Self::Error>;
    /// Everything written before is visible to all before anything that follows is read.
    fn barrier(&self);
}
