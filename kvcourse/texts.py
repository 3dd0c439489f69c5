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
