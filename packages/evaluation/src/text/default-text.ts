/** A built-in text for evaluations without a file: prose in the style of old books, then plain sentences. */
import { createRng } from '@winnow/tensor';
import { plainSentences } from './sentences.js';

const prose = `The house stood at the end of the lane, where the gravel gave way to grass, and for as long as anyone \
in the village could remember it had belonged to the Harrow family. Nobody had seen old Mr. Harrow for eleven years. \
He was not dead; the baker left a loaf at the gate on Mondays and Thursdays, and on Tuesdays and Fridays the loaf was \
gone, and once a month a letter came from a bank in the city, addressed in a round and patient hand.

I was fourteen when I first went up to the door. It was not courage that took me there. My brother Edmund had thrown \
his cap over the wall, and Edmund, who was seven and afraid of nothing that he could see, was very much afraid of \
what he could not. "You are the eldest," he said, as if that settled it, and I suppose that it did.

The gate was not locked. I had expected it to be, and had planned to come home with a clear conscience and no cap; \
but it swung open without a sound, as gates do that are oiled every week by someone who has little else to do. The \
path was swept. The grass on both sides had been cut, not by a gardener, for it was uneven, but with care. I found \
the cap at once, lying beside a stone basin in which there were three goldfish, and I might have gone away with it if \
a voice had not spoken to me from the window above.

"Is it raining in the village?" said the voice.

I looked up. An old man was leaning on the sill, in a grey coat buttoned to the chin, and he looked down at me with \
so much attention that I took off my hat.

"No, sir," I said. "It has not rained since Sunday."

"Then I was mistaken," said he. "I heard it on the roof of the chapel. When one has listened to the same roof for a \
long time one begins to know it, as one knows a face; but faces deceive us too. What is your name?"

I told him, and he repeated it twice, and asked me whether I could read. I said that I could, and some Latin besides, \
though this was hardly true. He was silent for a while. The fish went round in their basin; a cart passed in the \
lane; and I began to wonder whether he had fallen asleep with his eyes open, as my grandmother did.

"Come back on Saturday," he said at last, "at three o'clock. Come to the front door, and knock. I shall give you a \
shilling for each hour, and you shall read to me. My eyes are good for goldfish and for weather, but they are no \
longer good for print."

That was the beginning of it. My mother did not like the plan, and my father, who liked a shilling, said that there \
could be no harm in an old man and a book; and so on Saturday at three I stood before the door with clean hands, and \
knocked.

The room into which he led me was the largest that I had ever seen, and there was not a wall in it that was not \
covered with books from the floor to the ceiling. They stood in two rows, one behind the other; they lay on the \
chairs, and under the chairs, and along the edge of the carpet, so that one walked between them as between the beds \
of a garden. There was a clock, which had stopped, and a globe with a crack through the southern ocean. There was a \
fire, although it was the month of June.

"You will think that I have read them all," said Mr. Harrow, sitting down. "Everyone thinks so who comes here, and I \
have never found the words to explain that it is the other way about. A man does not keep the books that he has read. \
He keeps those that he means to read, and he keeps them where he can see them, so that he may not die before he is \
ready."

I did not know what to answer, and so I asked him which of them I should begin with. He pointed, without turning his \
head, to a small brown volume on the third shelf beside the window, and I took it down and wiped it with my sleeve. \
It was the journal of a ship. The name of the captain had been cut out of the first page with a knife, very neatly, \
so that through the hole one could read the date on the second.

I read until the light went. The ship had left harbour with forty men and a cargo of salt, and on the ninth day the \
wind had failed her. There were no adventures in it, no pirates and no storms; only the weather, and the water that \
was left, and what the men quarrelled about. Yet I could not stop, and when I looked up I saw that the old man was \
weeping, not as people do who are in pain, but quietly, as a wall is wet in autumn.

"Go home," he said. "That is enough. It is more than enough for one day. You read well; you do not hurry. The \
shilling is on the table beside the lamp, and there is a second for the boy who threw the cap."

So I came to know the house, and the man who lived in it, better than I knew my own father. Every Saturday I knocked, \
and every Saturday I read, that summer and the next, and through the long winter that lay between them, when the lane \
was deep in snow and the fish were brought into the kitchen in a pail. I learned which of the stairs were not to be \
trusted. I learned that he took no sugar and could not bear the sound of a violin. But of the captain without a name, \
and of the forty men, and of what it was that had made him weep, I learned nothing until the very end; and when at \
last I was told, it was not by him.

It was the lawyer who told me, a dry and cheerful person by the name of Pell, who had driven out from the city with a \
black box upon his knees. The funeral had been on the Tuesday. Nine people stood in the rain, and I believe that it \
was the rain on the roof of the chapel that I listened to, rather than the words of the parson; for I thought how \
well he would have known it.

"You are the young man who reads," said Mr. Pell. "Sit down, if you can find a chair. I am to give you this, and I am \
to tell you something, and I was made to promise that I should do it in that order."

He opened the box, and took out of it a narrow strip of paper, yellow at the edges, and laid it in my hand. I knew \
what it was before I had turned it over. It would have fitted, to the breadth of a hair, into the hole in the first \
page of the journal; and on it, in a round and patient hand, there was written the name of Harrow.

"He was twenty-six," said the lawyer. "It was his first command, and his last. Of the forty, eleven came home. They \
said at the inquiry that no man could have done more, and he was not blamed by anybody; the widows themselves wrote \
to him. But he had counted the water wrong, you see. He had made a mistake of a single figure, on the ninth day, in \
adding up a column, and he had found it on the twentieth, when it was too late to be of use. After that he did not \
trust himself with figures, or with men. He bought a house as far from the sea as he could find, and he sat down in \
it to listen."

I asked to what he had listened; but Mr. Pell only shut the box.

"To the roof, I suppose," he said. "He told me that when it rained in the night he could sleep."
`;

/** At least `numTokens` tokens; deterministic. */
export function defaultText(numTokens: number, countTokens: (text: string) => number): string {
  const missing = numTokens - countTokens(prose);
  if (missing <= 0) return prose;
  const sentences = plainSentences(createRng(1), missing + 64, countTokens);
  const paragraphs: string[] = [];
  for (let i = 0; i < sentences.length; i += 5) paragraphs.push(sentences.slice(i, i + 5).join(' '));
  return `${prose}\n${paragraphs.join('\n\n')}\n`;
}
