"""What each of the five papers says happens, in three sentences."""

MECHANISMS = {
    "recall": (
        "Facts live in a frozen memory; only attention is fine-tuned, to name the "
        "hidden relation of the examples first and then the answer. "
        "Attention settles on a pairwise pattern: equal weight on the two tokens of an "
        "example, different weight across examples, none on the query. "
        "Training passes a saddle at which the examples weigh the same and confusable "
        "relations tie, until a small perturbation lets one example win."
    ),
    "analogy": (
        "Two entities that are trained to the same label receive the same gradient, so "
        "their representations become alike. "
        "A property that is later taught of one entity then transfers to the other, "
        "which was never seen with it. "
        "The order matters (similarity before attribution), and two-hop reasoning is "
        "the same effect as soon as the bridge entity is also trained to name itself."
    ),
    "bridge": (
        "A model that learns A→B and B→C does not answer A→C, because B as an output "
        "and B as an input share nothing. "
        "Adding the trivial task B→B makes the cheapest solution reuse one direction "
        "for the subject and its bridge, a shared latent memory. "
        "Where a subject has several objects this only narrows the answer; small "
        "initialisation or weight decay then lets the hidden state of (A, relation) "
        "collapse onto that of B."
    ),
    "symbols": (
        "Attention sees which positions hold equal tokens, whatever the tokens are, so "
        "a relation can be applied to symbols that were never trained. "
        "Learning this from data alone takes many examples; one scalar per head that "
        "adds the identity to the query-key product cuts the need by an order. "
        "Copying an unseen symbol fails, and more so in wider models, until a scalar "
        "adds the identity to the value-output product."
    ),
    "lego": (
        "Attention retrieves the two clauses that the next step needs by matching "
        "their shared variable; the feed-forward part applies the action to the value. "
        "The second part does not see the length, so a longer chain fails only where "
        "attention is diluted, and sharp attention generalises to it. "
        "Simply transitive actions force sharp attention; symmetry actions allow "
        "distractors, and need rounds of self-training that double the length."
    ),
}
