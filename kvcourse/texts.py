"""Texts that the lessons read to the model. Written for this course."""

LIGHTHOUSE = """\
The lighthouse on the island had been dark for eleven years when Mara came to repair it. She brought two suitcases, \
a box of tools and a grey cat named Bishop. The fishermen on the pier told her that the lamp would never burn again. \
The lens was cracked, they said, the wires were rotten, and nobody remembered where the old keeper had put the key.

Mara thanked them and climbed the hill. The door was not locked at all. Inside, the stairs turned round and round like \
the inside of a shell, and at the top she found the lamp under a sheet, as if someone had put it to bed. She cleaned \
the glass first. It took her three days. Then she pulled out the old wires, one after another, and laid new ones along \
the wall, and each evening she wrote in a notebook what she had done and what was left to do. The cat slept in the \
toolbox. On the ninth evening the wind rose and the rain came in from the north, and far out on the water she saw a \
small boat that had lost its way. The boat turned in circles, because the people in it could not see the shore. Mara \
put down her pen. She ran up the stairs, counted to three, and pulled the switch. For a moment nothing happened. Then \
the lamp began to glow, and the light went out over the sea, and the people in the boat"""

# It comes back to its names and numbers, so that a reader has to remember them.
ORCHARDS = """\
In the valley of Brenn there are four orchards, and each of them has its own keeper. Old Halvard keeps the northern \
orchard, where the apples are red and sour. His sister Ingrid keeps the southern one, where the pears ripen late. \
The plums in the east belong to Tobias, a quiet man with a white dog, and the walnuts in the west belong to Selma, \
who is the youngest of the four and the only one who can draw a map.

Every autumn, on the first Sunday after the rain, the four keepers meet at the bridge and count what they have \
picked. This year Halvard brought ninety baskets of apples, Ingrid brought sixty baskets of pears, Tobias brought \
forty baskets of plums, and Selma brought twelve sacks of walnuts. They wrote the numbers on the wall of the mill, \
as their parents had done: ninety, sixty, forty, twelve. Then they began to trade. Ingrid gave ten baskets of pears \
to Halvard, and Halvard gave her ten baskets of apples. Tobias wanted something to crack in the long winter, so he \
gave Selma eight baskets of plums for two sacks of walnuts, and the white dog lay down in front of the sacks as if \
they were his own.

In the evening a merchant came over the bridge with an empty cart. He asked who kept the apples, and they told him \
that it was Halvard. He asked who kept the pears, and they told him that it was Ingrid. He asked who kept the plums, \
and Tobias lifted his hand without a word. Last of all he asked who kept the walnuts, and the other three pointed at \
Selma. She was drawing the valley on the wall of the mill, under the numbers of that year, with the bridge in the \
middle and the four orchards around it: the apples in the north, the pears in the south, the plums in the east, and \
in the west"""
