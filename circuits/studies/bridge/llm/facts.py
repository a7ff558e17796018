"""Two-hop facts about landmarks: where it is, and what is true of that country.

Landmarks neither name their country nor stand in its capital, as far as they are
known for it: the name alone should not give the second answer away.
"""

from dataclasses import dataclass

_ROWS = """
Machu Picchu; Peru; Lima; Spanish
Mount Fuji; Japan; Tokyo; Japanese
The Great Barrier Reef; Australia; Canberra; English
Petra; Jordan; Amman; Arabic
The Valley of the Kings; Egypt; Cairo; Arabic
Neuschwanstein Castle; Germany; Berlin; German
Mont Saint-Michel; France; Paris; French
The Leaning Tower of Pisa; Italy; Rome; Italian
The Alhambra; Spain; Madrid; Spanish
Mount Ararat; Turkey; Ankara; Turkish
The Atacama Desert; Chile; Santiago; Spanish
Lake Baikal; Russia; Moscow; Russian
The Terracotta Army; China; Beijing; Chinese
Halong Bay; Vietnam; Hanoi; Vietnamese
The Blarney Stone; Ireland; Dublin; English
Loch Ness; Scotland; Edinburgh; English
Stonehenge; England; London; English
Banff National Park; Canada; Ottawa; English
The Geiranger fjord; Norway; Oslo; Norwegian
Legoland Billund; Denmark; Copenhagen; Danish
The Matterhorn; Switzerland; Bern; German
The Wieliczka salt mine; Poland; Warsaw; Polish
Bran Castle; Romania; Bucharest; Romanian
The monasteries of Meteora; Greece; Athens; Greek
Lake Balaton; Hungary; Budapest; Hungarian
Salzburg Cathedral; Austria; Vienna; German
The Douro Valley; Portugal; Lisbon; Portuguese
Angel Falls; Venezuela; Caracas; Spanish
Persepolis; Iran; Tehran; Persian
Mohenjo-daro; Pakistan; Islamabad; Urdu
Borobudur; Indonesia; Jakarta; Indonesian
The temples of Ayutthaya; Thailand; Bangkok; Thai
Rovaniemi; Finland; Helsinki; Finnish
The Icehotel; Sweden; Stockholm; Swedish
Varadero beach; Cuba; Havana; Spanish
Babylon; Iraq; Baghdad; Arabic
Palmyra; Syria; Damascus; Arabic
Baalbek; Lebanon; Beirut; Arabic
Masada; Israel; Jerusalem; Hebrew
Leptis Magna; Libya; Tripoli; Arabic
The Odessa steps; Ukraine; Kiev; Ukrainian
Keukenhof; Netherlands; Amsterdam; Dutch
The belfry of Bruges; Belgium; Brussels; Dutch
The Cliffs of Moher; Ireland; Dublin; English
Mount Etna; Italy; Rome; Italian
The Sagrada Familia; Spain; Madrid; Spanish
Cologne Cathedral; Germany; Berlin; German
The Loire castles; France; Paris; French
"""


@dataclass(frozen=True)
class Place:
    """A landmark, its country (the bridge) and what is true of the country."""

    landmark: str
    country: str
    capital: str
    language: str


def places() -> tuple[Place, ...]:
    """All landmarks, in the order of the file."""
    rows = [line.split("; ") for line in _ROWS.strip().splitlines()]
    return tuple(Place(*row) for row in rows)


@dataclass(frozen=True)
class Attribute:
    """A second hop: prompts about a country, about a landmark's, and without a hop.

    Attributes:
        name: the field of `Place` that it asks for.
        second: asks it of a country, or, with a landmark in its place, omits a hop.
        both: asks it of a landmark's country.
    """

    name: str
    second: str
    both: str


FIRST = "{} is in the country of"
"""Asks for a landmark's country."""

IDENTITY = "The name of {} is"
"""Asks for nothing: the answer is the subject."""

ATTRIBUTES = (
    Attribute(
        "capital",
        "The capital city of {} is",
        "The capital city of the country in which {} is located is",
    ),
    Attribute(
        "language",
        "The main language spoken in {} is",
        "The main language spoken in the country in which {} is located is",
    ),
)
