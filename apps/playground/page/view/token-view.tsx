/** The tokens of an answer, colored by their probability, with the alternatives of the chosen one. */
import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import type { AnswerToken } from '../backend/contract.js';

/** Lower bounds of the probability of each color. */
const levels = [0.9, 0.5, 0.2, 0.05, 0];

export function TokenView({ tokens }: { readonly tokens: readonly AnswerToken[] }): JSX.Element {
  const chosen = useSignal<number | undefined>(undefined);
  const token = chosen.value === undefined ? undefined : tokens[chosen.value];
  return (
    <div class="tokens">
      <p class="said">
        {tokens.map(({ text, logprob }, index) => (
          <button
            key={index}
            type="button"
            class={`token level-${levels.findIndex((bound) => Math.exp(logprob) >= bound)}`}
            aria-pressed={chosen.value === index}
            aria-label={text.trim() === '' ? visible(text) : undefined}
            onClick={() => (chosen.value = chosen.value === index ? undefined : index)}
          >
            {text}
          </button>
        ))}
      </p>
      {token !== undefined && <Alternatives token={token} />}
    </div>
  );
}

function Alternatives({ token }: { readonly token: AnswerToken }): JSX.Element {
  return (
    <table>
      <caption>
        {visible(token.text)}: log-probability {token.logprob.toFixed(3)}
      </caption>
      <thead>
        <tr>
          <th scope="col">Alternative</th>
          <th scope="col">Log-probability</th>
          <th scope="col">Probability</th>
        </tr>
      </thead>
      <tbody>
        {token.alternatives.map(({ text, logprob }, index) => (
          <tr key={index}>
            <td>
              <code>{visible(text)}</code>
            </td>
            <td>{logprob.toFixed(3)}</td>
            <td>{(100 * Math.exp(logprob)).toFixed(1)} %</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** Spaces and line ends are tokens, too. */
function visible(text: string): string {
  return JSON.stringify(text);
}
