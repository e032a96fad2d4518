# Entered by PVH: 32-bit, flat segments, no paging, %ebx points to the start info. What follows makes tables that map
# the first 4 GiB as they are, goes to 64 bit, asks KVM for its clock and drops to CPL 3 with IOPL 3. A load lives there:
# a KVM without hardware virtualization runs CPL 3 on the CPU and emulates CPL 0, and on others it makes no difference.
    .section .note.pvh, "a", @note
    .align 4
    .long 4, 4, 18
    .asciz "Xen"
    .long _start

    .section .text.start, "ax"
    .code32
    .globl _start
_start:
    cld
    mov $stack0_top, %esp
    mov %ebx, start_info
    mov $tables_pd, %edi
    xor %ecx, %ecx
1:  mov %ecx, %eax
    shl $21, %eax
    or $0x87, %eax                      # present, writable, CPL 3 too, 2 MiB
    mov %eax, (%edi)
    movl $0, 4(%edi)
    add $8, %edi
    inc %ecx
    cmp $2048, %ecx
    jne 1b
    mov $tables_pdpt, %edi
    mov $tables_pd + 7, %eax
    mov $4, %ecx
2:  mov %eax, (%edi)
    add $8, %edi
    add $4096, %eax
    dec %ecx
    jnz 2b
    mov $tables_pdpt + 7, %eax
    mov %eax, tables_pml4
    mov $tables_pml4, %eax
    mov %eax, %cr3
    mov $0x620, %eax                    # PAE, OSFXSR, OSXMMEXCPT
    mov %eax, %cr4
    mov $0xc0000080, %ecx               # EFER: LME
    xor %edx, %edx
    mov $0x101, %eax
    wrmsr
    mov $0x80010033, %eax               # PG, WP, NE, ET, MP, PE
    mov %eax, %cr0
    movl $stack0_top, tss + 4           # where CPL 0 has its stack
    movw $104, tss + 102                # the map of ports: not every KVM goes by IOPL alone
    movb $0xff, tss + 104 + 8192
    mov $tss, %eax
    mov %ax, gdt_tss + 2
    shr $16, %eax
    mov %al, gdt_tss + 4
    mov %ah, gdt_tss + 7
    mov $idt, %edi                      # every vector to its stub
    mov $256, %ecx
    mov $stubs, %esi
3:  mov %esi, %eax
    and $0xffff, %eax
    or $0x100000, %eax
    mov %eax, (%edi)
    mov %esi, %eax
    and $0xffff0000, %eax
    or $0x8e00, %eax
    mov %eax, 4(%edi)
    movl $0, 8(%edi)
    movl $0, 12(%edi)
    add $16, %esi
    add $16, %edi
    dec %ecx
    jnz 3b
    mov $wake, %eax                     # vector 0x40: a queue has something
    mov %ax, idt + 0x40 * 16
    shr $16, %eax
    shl $16, %eax
    or $0x8e00, %eax
    mov %eax, idt + 0x40 * 16 + 4
    lgdt gdtr
    lidt idtr
    ljmp $0x10, $4f

    .code64
4:  mov $0x18, %eax
    mov %eax, %ds
    mov %eax, %es
    mov %eax, %ss
    xor %eax, %eax
    mov %eax, %fs
    mov %eax, %gs
    mov $0x40, %eax
    ltr %ax
    mov $stack0_top, %rsp
    mov $0x40000000, %eax               # "KVMKVMKVM"
    cpuid
    cmp $0x4b4d564b, %ebx
    jne 5f
    mov $0x40000001, %eax
    cpuid
    test $8, %eax                       # KVM_FEATURE_CLOCKSOURCE2
    jz 5f
    mov $kvm_clock + 1, %eax
    xor %edx, %edx
    mov $0x4b564d01, %ecx               # MSR_KVM_SYSTEM_TIME_NEW
    wrmsr
5:  mov $0xc0000081, %ecx               # STAR: syscall to 0x10, sysret to 0x30 and 0x28
    xor %eax, %eax
    mov $0x00200010, %edx
    wrmsr
    mov $0xc0000082, %ecx               # LSTAR: the one call there is waits for an interrupt
    mov $halt, %eax
    xor %edx, %edx
    wrmsr
    mov $0xc0000084, %ecx               # FMASK: with interrupts off
    mov $0x200, %eax
    wrmsr
    mov $0xfee000f0, %eax               # the local APIC: on, spurious vector 0xff
    movl $0x1ff, (%rax)
    mov start_info, %edi
    pushq $0x2b                         # SS of CPL 3
    pushq $stack3_top - 8
    pushq $0x3002                       # IOPL 3, no interrupts
    pushq $0x33                         # CS of CPL 3
    pushq $guest_main
    iretq

halt:
    sti
    hlt
    cli
    sysretq

wake:
    push %rax
    mov $0xfee000b0, %eax               # end of interrupt
    movl $0, (%rax)
    pop %rax
    iretq

    .align 16
stubs:
    .set vector, 0
    .rept 256
    .align 16
    pushq $vector
    jmp common
    .set vector, vector + 1
    .endr
common:
    mov %rsp, %rdi
    and $-16, %rsp
    call guest_trap
6:  hlt
    jmp 6b

    .data
    .align 16
gdt:
    .quad 0, 0
    .quad 0x00af9b000000ffff            # 0x10: code of CPL 0
    .quad 0x00cf93000000ffff            # 0x18: data of CPL 0
    .quad 0
    .quad 0x00cff3000000ffff            # 0x28: data of CPL 3
    .quad 0x00affb000000ffff            # 0x30: code of CPL 3
    .quad 0
gdt_tss:
    .quad 0x0000890000002068, 0         # 0x40: with a map of ports, all of them free to CPL 3
gdtr:
    .word gdtr - gdt - 1
    .long gdt, 0
idtr:
    .word 4095
    .long idt, 0
    .bss
    .globl start_info
    .globl kvm_clock
    .align 4096
tables_pml4: .skip 4096
tables_pdpt: .skip 4096
tables_pd:   .skip 16384
idt:         .skip 4096
tss:         .skip 104 + 8192 + 1
    .align 64
kvm_clock:   .skip 64
start_info:  .skip 64
    .align 16
stack0:      .skip 32768
stack0_top:
stack3:      .skip 262144
stack3_top:
