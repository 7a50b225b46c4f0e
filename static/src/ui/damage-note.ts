// What the page says above everything when part of its file is missing or changed. Both scripts write into the one note.

const ID = 'damage'

/** Adds a sentence. */
export function reportDamage(sentence: string): void {
  console.warn(sentence)
  let note = document.getElementById(ID)
  if (!note) {
    note = document.createElement('p')
    note.id = ID
    note.className = 'notice'
    note.setAttribute('role', 'alert')
    note.textContent = 'Get the file again from where it came from.'
    const top = document.getElementById('top')
    if (top) top.append(note)
    else document.body.prepend(note)
  }
  note.insertBefore(document.createTextNode(`${sentence} `), note.lastChild)
}
