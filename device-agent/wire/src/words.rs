//! The control page as both sides see it: words, and waking whoever waits for one.

/// The words of a control page.
pub trait Words {
    /// What can go wrong with one.
    type Error;
    /// Reads a word; what was written before it is seen from now on.
    ///
    /// # Errors
    /// The page is gone.
    fn load(&self, offset: usize) -> Result<u32, Self::Error>;
    /// Writes a word, after everything that was written before.
    ///
    /// # Errors
    /// The page is gone.
    fn store(&self, offset: usize, value: u32) -> Result<(), Self::Error>;
    /// Wakes everybody who waits for a word to change.
    ///
    /// # Errors
    /// The page is gone.
    fn wake(&self, offset: usize) -> Result<(), Self::Error>;
    /// What was written before is seen by everybody before anything is read that follows.
    fn barrier(&self);
}
