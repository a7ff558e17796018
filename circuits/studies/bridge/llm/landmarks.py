"""Two-hop facts that come with the study: where a landmark is, and what is true there.

Landmarks neither name their country nor stand in its capital, as far as they are known
for it: the name alone should not give the second answer away.
"""

from .rows import Row

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

_SECOND_HOPS = {
    "capital": "The capital city of {} is",
    "language": "The main language spoken in {} is",
}


def landmarks() -> list[Row]:
    """Every landmark asked for its country's capital and language."""
    found = []
    for line in _ROWS.strip().splitlines():
        landmark, country, *answers = line.split("; ")
        for (r2, hop2), answer in zip(_SECOND_HOPS.items(), answers, strict=True):
            row = Row(
                uid=f"{landmark}, {r2}",
                r1="country",
                r2=r2,
                e1=landmark,
                e2=country,
                e3=answer,
                two_hop=hop2.format(f"the country in which {landmark} is located"),
                hop1=f"{landmark} is in the country of",
                hop2=hop2.format(country),
            )
            found.append(row)
    return found
