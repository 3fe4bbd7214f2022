/** Fields of forms that more than one view has. */
import type { Signal } from '@preact/signals';
import type { JSX } from 'preact';

interface SecretFieldProps {
  readonly label: string;
  readonly value: Signal<string>;
}

/** A key or token: neither shown nor offered again by the browser. */
export function SecretField({ label, value }: SecretFieldProps): JSX.Element {
  return (
    <label>
      {label}
      <input
        type="password"
        autocomplete="off"
        value={value.value}
        onInput={(event) => (value.value = event.currentTarget.value)}
      />
    </label>
  );
}

interface JsonFieldProps {
  /** Begins the id of the problem's element. */
  readonly name: string;
  readonly label: string;
  readonly rows: number;
  readonly text: string;
  /** Why the text cannot be used; empty if it can. */
  readonly problem: string;
  readonly onInput: (text: string) => void;
}

export function JsonField({ name, label, rows, text, problem, onInput }: JsonFieldProps): JSX.Element {
  const problemId = `${name}-problem`;
  return (
    <label>
      {label}
      <textarea
        rows={rows}
        spellcheck={false}
        value={text}
        aria-invalid={text === '' ? undefined : problem !== ''}
        aria-describedby={problemId}
        onInput={(event) => onInput(event.currentTarget.value)}
      />
      <small id={problemId}>{problem}</small>
    </label>
  );
}
