/** Endless plain sentences from a few word lists, for haystacks: none of them can be mistaken for a needle. */
import type { Rng } from '@winnow/tensor';

const people =
  'the old man|the doctor|his sister|the captain|her mother|the stranger|a young woman|' +
  'the master of the house|the boy|my friend|the soldier|the two brothers|an old servant|' +
  'the gentleman in black|the lady|the priest|a poor fisherman|the children|the lawyer|our neighbour';
const deeds =
  'looked at the sea for a long time|walked slowly along the river|spoke of the war and of the winter|' +
  'sat by the fire without a word|went up the narrow stairs|wrote a letter and did not send it|' +
  'laughed at the thought of it|stood under the trees until it was dark|shook his head and said nothing|' +
  'opened the window to hear the rain|counted the ships in the harbour|read the newspaper from end to end|' +
  'thought of a garden far away|asked for bread and a little wine|came back with mud on both boots|' +
  'listened to the clock in the hall|followed the road to the village|' +
  'carried a lamp through the empty rooms|remembered a song from years ago|' +
  'waited for an answer that never came';
const times =
  'in the evening|before breakfast|on the second day|when the bells had stopped|after the long journey|' +
  'that autumn|as the snow began to fall|late at night|in the first light of the morning|' +
  'a little before noon|some weeks later|at the end of the summer';
const reasons =
  'for there was nothing else to do|because the door was still open|and nobody asked why|' +
  'though the wind had turned cold|while the others were asleep|as people do who have lost something|' +
  'and was happy for an hour|for the house seemed too large|but it made no difference|' +
  'and the dog went along|though it was against all custom|because the letter had not come';

const lists: readonly (readonly string[])[] = [people, deeds, times, reasons].map((list) => list.split('|'));

/** One of more than fifty thousand sentences, with its full stop. */
export function plainSentence(rng: Rng): string {
  const [who, what, when, why] = lists.map((list) => list[rng.nextInt(list.length)]);
  const text = rng.nextInt(2) === 0 ? `${who} ${what} ${when}, ${why}.` : `${when}, ${who} ${what}, ${why}.`;
  return `${text[0].toUpperCase()}${text.slice(1)}`;
}

/** As many sentences as fit into `numTokens` tokens, as counted by `countTokens`. */
export function plainSentences(rng: Rng, numTokens: number, countTokens: (text: string) => number): string[] {
  const sentences: string[] = [];
  for (let total = 0; ;) {
    const sentence = plainSentence(rng);
    total += countTokens(` ${sentence}`);
    if (total > numTokens) return sentences;
    sentences.push(sentence);
  }
}
