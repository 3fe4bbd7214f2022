/** Classifies neurons as hot, warm or cold by how often they are active. */

export interface NeuronClasses {
  /** The most frequent neurons that together make up half of all activity. */
  readonly hot: Int32Array;
  readonly warm: Int32Array;
  /** The rarest neurons that together make up a twentieth of all activity. */
  readonly cold: Int32Array;
}

const hotShare = 0.5;
const coldShare = 0.05;

/** Classes are relative, since absolute frequencies depend on the model. Ids in each by descending frequency. */
export function classifyNeurons(frequencies: Float32Array): NeuronClasses {
  const order = Int32Array.from(frequencies, (_, id) => id).sort((a, b) => frequencies[b] - frequencies[a] || a - b);
  const total = frequencies.reduce((sum, frequency) => sum + frequency, 0);
  let sum = 0;
  let numHot = 0;
  while (numHot < order.length && sum < hotShare * total) sum += frequencies[order[numHot++]];
  let rest = 0;
  let coldBegin = order.length;
  while (coldBegin > numHot && rest + frequencies[order[coldBegin - 1]] <= coldShare * total) {
    rest += frequencies[order[--coldBegin]];
  }
  return { hot: order.slice(0, numHot), warm: order.slice(numHot, coldBegin), cold: order.slice(coldBegin) };
}
