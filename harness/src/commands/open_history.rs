//! Opens the history that a command of the server names, and says which one it is.

use memgate_server::store::Store;

use crate::cli::StoreArgs;
use crate::exit::ExpectedError;
use crate::history;
use crate::output::Console;

/// With `creates`, a history that does not exist is created.
pub(super) async fn open_history(
    at: &StoreArgs,
    creates: bool,
    console: &Console,
) -> Result<Store, ExpectedError> {
    let address = history::address(&at.data, at.database.as_deref());
    let opened = if creates { Store::open(&address).await } else { Store::open_existing(&address).await };
    let store = opened.map_err(|why| history::store_error(&why))?;
    console.line(&history::named(&address));
    Ok(store)
}
