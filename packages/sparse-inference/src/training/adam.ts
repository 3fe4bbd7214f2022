/** First and second moments of the gradients of one array of parameters. */
export interface AdamMoments {
  readonly first: Float32Array;
  readonly second: Float32Array;
}

const beta1 = 0.9;
const beta2 = 0.999;
const epsilon = 1e-8;

export function createMoments(length: number): AdamMoments {
  return { first: new Float32Array(length), second: new Float32Array(length) };
}

/**
 * One step of Adam (arXiv:1412.6980 algorithm 1), in place.
 * @param step number of the step, from 1
 */
export function adamStep(
  parameters: Float32Array,
  gradients: Float32Array,
  { first, second }: AdamMoments,
  step: number,
  learningRate: number,
): void {
  const rate = learningRate / (1 - beta1 ** step);
  const correction = 1 / (1 - beta2 ** step);
  for (let i = 0; i < parameters.length; i++) {
    const g = gradients[i];
    first[i] = beta1 * first[i] + (1 - beta1) * g;
    second[i] = beta2 * second[i] + (1 - beta2) * g * g;
    parameters[i] -= (rate * first[i]) / (Math.sqrt(second[i] * correction) + epsilon);
  }
}
