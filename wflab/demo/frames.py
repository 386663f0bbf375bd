"""The books as DataFrames, good to look at and of proper types. pandas is imported when it's asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wflab.demo.ledger import Request

if TYPE_CHECKING:
    import pandas

__all__ = ["charges_frame", "money", "requests_frame"]

_SYMBOLS = {"usd": "$", "eur": "€", "gbp": "£", "jpy": "¥"}
_WITHOUT_CENTS = frozenset(
    ["bif", "clp", "djf", "gnf", "jpy", "kmf", "krw", "mga", "pyg", "rwf", "ugx", "vnd", "vuv", "xaf", "xof", "xpf"]
)


def money(amount: int, currency: str) -> str:
    """An amount as people write it: 1000, `usd` is `$10.00`; 1000, `chf` is `10.00 CHF`."""
    text = f"{amount:,}" if currency in _WITHOUT_CENTS else f"{amount // 100:,}.{amount % 100:02d}"
    return f"{_SYMBOLS[currency]}{text}" if currency in _SYMBOLS else f"{text} {currency.upper()}"


def charges_frame(charges: list[dict[str, Any]]) -> pandas.DataFrame:
    """One row a charge, oldest first."""
    pd = _pandas()
    columns = {
        "id": _text(pd, [charge["id"] for charge in charges]),
        "customer": _text(pd, [charge["customer"] for charge in charges]),
        "paid": _text(pd, [money(charge["amount"], charge["currency"]) for charge in charges]),
        "amount": pd.array([charge["amount"] for charge in charges], dtype="int64"),
        "currency": _category(pd, [charge["currency"] for charge in charges]),
        "status": _category(pd, [_status(charge) for charge in charges]),
        "description": _text(pd, [charge["description"] for charge in charges]),
        "created": _moments(pd, [charge["created"] for charge in charges], unit="s"),
        "idempotency_key": _text(pd, [charge["idempotency_key"] for charge in charges]),
    }
    frame: pandas.DataFrame = pd.DataFrame(columns)
    return frame


def requests_frame(requests: list[Request]) -> pandas.DataFrame:
    """One row a request, in the order in which they came in."""
    pd = _pandas()
    columns = {
        "received": _moments(pd, [request.received for request in requests]),
        "request": _text(pd, [f"{request.method} {request.path}" for request in requests]),
        "outcome": _category(pd, [request.outcome for request in requests]),
        "status": pd.array([request.status for request in requests], dtype="Int64"),
        "charge": _text(pd, [request.charge for request in requests]),
        "duration": pd.to_timedelta([request.duration for request in requests]).as_unit("us"),
        "idempotency_key": _text(pd, [request.idempotency_key for request in requests]),
    }
    frame: pandas.DataFrame = pd.DataFrame(columns)
    return frame


def _status(charge: dict[str, Any]) -> str:
    if charge["refunded"]:
        return "refunded"
    return "partly refunded" if charge["amount_refunded"] else str(charge["status"])


def _text(pd: Any, values: list[str | None]) -> Any:
    return pd.array(values, dtype="string")


def _category(pd: Any, values: list[str]) -> Any:
    # Empty books have text categories, too.
    return pd.Categorical(values, categories=pd.array(sorted(set(values)), dtype="string"))


def _moments(pd: Any, values: list[Any], unit: str | None = None) -> Any:
    # Microseconds whatever the values and the version of pandas: frames can be joined, and empty ones are of one type.
    return pd.to_datetime(values, unit=unit, utc=True).as_unit("us")


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as missing:
        raise ImportError(
            "DataFrames need pandas: pip install 'wflab[lab]'. Without it: charges() and received_requests()"
        ) from missing
    return pandas
