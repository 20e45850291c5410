with source as (

    select * from {{ source('raw', 'employees') }}

)

select
    id as employee_id,
    name as employee_name,
    manager as manager_id,
    store as store_id
from source
