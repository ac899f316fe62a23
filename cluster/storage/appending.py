"""Appends to a Delta table, by the only one who writes to it.

    files ──> commit that names them ──> checkpoint, at times
              │ an error here, whatever it says: was the commit made? Its transactions tell

An append either is made or not, and whoever asks for one learns which. Only where the table cannot be read either is
that unknown; then nothing more is appended before it is known.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from cluster.errors import StorageError
from cluster.storage.data_files import write_data_file
from cluster.storage.delta_tables import checkpointed, due_for_checkpoint

NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""What follows a commit is done apart from it: its failures are none of the commit."""


class OutcomeUnknownError(StorageError):
    """An append that may have been made or not; the table cannot be read to see."""


class AppendedTable:
    """A Delta table that only this process appends to.

    Parameters
    ----------
    root
        Folder (or URI) of the table.
    delta
        The table, open.
    """

    def __init__(self, root: str, delta: DeltaTable) -> None:
        self.root = root
        self.delta = delta
        self._checkpoint_seen = delta.version()
        self._in_doubt = False

    @property
    def version(self) -> int:
        """The newest version this handle knows."""
        return self.delta.version()

    def stored(self, application: str) -> int | None:
        """Return the version of an application's newest transaction; None if there is none.

        Raises
        ------
        OutcomeUnknownError
            If the table cannot be read.
        """
        try:
            self._look_again()
            return self.delta.transaction_version(application)
        except (DeltaError, OSError) as error:
            raise self._unknown(error) from error

    def made(self, transactions: Mapping[str, int]) -> bool:
        """Return whether all these transactions are stored; errors are those of :meth:`stored`."""
        return all(_reached(self.stored(name), version) for name, version in transactions.items())

    def append(
        self, rows: pa.Table | None, transactions: Mapping[str, int], metadata: Mapping[str, str] | None = None
    ) -> int:
        """Append rows in one commit, with columns that are new to the table; return the new version.

        Parameters
        ----------
        rows
            None if there are only transactions or metadata.
        transactions
            By application: the version this append brings it to.
        metadata
            What the commit says of itself.

        Raises
        ------
        OutcomeUnknownError
            If it may have been made or not.
        StorageError
            If it fails; then nothing of it is stored.
        """
        properties = CommitProperties(
            custom_metadata=dict(metadata or {}),
            app_transactions=[Transaction(name, version) for name, version in transactions.items()],
        )
        try:
            self._look_again()
        except (DeltaError, OSError) as error:
            raise self._unknown(error) from error
        try:
            self._commit(rows, properties)
        except Exception as error:  # whatever went wrong, the commit may have been made before it did
            self._in_doubt = True
            if not (transactions and self.made(transactions)):
                raise StorageError(f"could not append to table {self.root}: {error}") from error
        version = self.version
        self._keep_quick()
        return version

    def _commit(self, rows: pa.Table | None, properties: CommitProperties) -> None:
        added: list[AddAction | RemoveAction] = []
        if rows is not None:
            added.append(write_data_file(self.root, self._fitted(rows)))
        schema = self.delta.schema()
        self.delta.create_write_transaction(
            added, "append", schema, commit_properties=properties, post_commithook_properties=NO_HOOKS
        )
        self.delta.update_incremental()

    def _fitted(self, rows: pa.Table) -> pa.Table:
        """Return rows with the table's columns, in its order, after giving it those that it lacks."""
        known = pa.schema(self.delta.schema().to_arrow())
        new = [field for field in rows.schema if field.name not in known.names]
        if new:
            fields = [field.with_nullable(nullable=True) for field in new]
            self.delta.alter.add_columns(
                Schema.from_arrow(pa.schema(fields)).fields, post_commithook_properties=NO_HOOKS
            )
        nothing = [pa.nulls(rows.num_rows, field.type) for field in known if field.name not in rows.column_names]
        filled = [*(field for field in known if field.name not in rows.column_names)]
        for field, column in zip(filled, nothing, strict=True):
            rows = rows.append_column(field, column)
        return rows.select([*known.names, *(field.name for field in new)])

    def _look_again(self) -> None:
        """Open the table anew if an append may have been made or not; whoever asked for it then looks for it."""
        if self._in_doubt:
            self.delta = DeltaTable(self.root)
            self._in_doubt = False

    def _unknown(self, error: Exception) -> OutcomeUnknownError:
        return OutcomeUnknownError(
            f"what is stored in table {self.root} cannot be seen: {error}",
            hint="nothing more is appended before the table can be read",
        )

    def _keep_quick(self) -> None:
        if due_for_checkpoint(self._checkpoint_seen, self.version):
            self._checkpoint_seen = self.version
            self.delta = checkpointed(self.delta, self.root)


def _reached(stored: int | None, version: int) -> bool:
    return stored is not None and stored >= version
